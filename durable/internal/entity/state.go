package entity

import (
	"encoding/json"
	"fmt"
)

// A State is the stored state of an entity: the user's state, and the state of its messages
// (DurableTask.Core/Entities/StateFormat/SchedulerState.cs). The zero State belongs to an
// entity that has received no message.
type State struct {
	Text      *string // the user's state as JSON text; nil if the entity does not exist
	queue     []*Request
	lockedBy  string
	suspended bool
	sorter    Sorter

	// Extensions that DurableTask ignores: the ID and the origin of the lock request of
	// lockedBy, and the messages that batches took and sent.
	lockID     string
	lockOrigin string
	memory     memory
}

// Encode returns s as JSON text. The member "exists" is for the extension's older scheduler:
// without it the entity does not exist, whatever its state (the extension's
// EntityScheduler/SchedulerState.cs).
func (s *State) Encode() string {
	w := writer{buf: make([]byte, 0, 256+len(text(s.Text)))}
	w.open()
	if s.Text != nil {
		w.bool("exists", true)
	}
	w.optional("state", s.Text)
	if len(s.queue) > 0 {
		w.list("queue", len(s.queue), func(i int) { s.queue[i].write(&w) })
	}
	w.filled("lockedBy", s.lockedBy)
	if s.suspended {
		w.bool("suspended", true)
	}
	w.key("sorter")
	s.sorter.write(&w)
	w.filled("lockId", s.lockID)
	w.filled("lockOrigin", s.lockOrigin)
	s.memory.write(&w)
	w.close()
	return string(w.buf)
}

// DecodeState decodes a State in either format. Nil input is the zero State.
func DecodeState(input *string) (*State, error) {
	s := new(State)
	if input == nil {
		return s, nil
	}
	var wire struct {
		State      *string       `json:"state"`
		Queue      []*Request    `json:"queue"`
		LockedBy   string        `json:"lockedBy"`
		Suspended  bool          `json:"suspended"`
		Sorter     Sorter        `json:"sorter"`
		LockID     string        `json:"lockId"`
		LockOrigin string        `json:"lockOrigin"`
		Memory     memory        `json:"memory"`
		Outbox     []wireMessage `json:"outbox"`
	}
	if err := json.Unmarshal([]byte(*input), &wire); err != nil {
		return nil, fmt.Errorf("decode the stored state of an entity: %w", err)
	}
	*s = State{
		Text: wire.State, lockedBy: wire.LockedBy, suspended: wire.Suspended,
		sorter: wire.Sorter, lockID: wire.LockID, lockOrigin: wire.LockOrigin, memory: wire.Memory,
	}
	s.memory.last.outbox = messagesOf(wire.Outbox)
	for _, r := range wire.Queue {
		if r != nil {
			s.queue = append(s.queue, r)
		}
	}
	return s, nil
}

// StateText returns the user's state in an encoded State, or nil if the entity does not exist.
func StateText(input *string) (*string, error) {
	s, err := DecodeState(input)
	if err != nil {
		return nil, err
	}
	return s.Text, nil
}

// Status returns the custom status of s, which is visible to clients.
func (s *State) Status() Status {
	return Status{Exists: s.Text != nil, QueueSize: len(s.queue), LockedBy: s.lockedBy}
}

// A Status is the custom status of an entity's instance
// (DurableTask.Core/Entities/StateFormat/EntityStatus.cs).
type Status struct {
	Exists    bool   `json:"entityExists"`
	QueueSize int    `json:"queueSize"`
	LockedBy  string `json:"lockedBy"`
}

// Encode returns s as JSON text.
func (s Status) Encode() string {
	var w writer
	w.open()
	if s.Exists {
		w.bool("entityExists", true)
	}
	if s.QueueSize != 0 {
		w.int("queueSize", s.QueueSize)
	}
	w.filled("lockedBy", s.LockedBy)
	w.close()
	return string(w.buf)
}

// IsEmpty reports whether the entity has no state, no queue and no lock. It can be removed once
// its sorter and memory are older than the reorder window.
func (s Status) IsEmpty() bool { return s == Status{} }

// ParseStatus decodes the custom status of an entity's instance. Nil is the zero Status.
func ParseStatus(customStatus *string) (Status, error) {
	var s Status
	if customStatus == nil {
		return s, nil
	}
	if err := json.Unmarshal([]byte(*customStatus), &s); err != nil {
		return Status{}, fmt.Errorf("decode the status of an entity: %w", err)
	}
	return s, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Settle records that the last batch is settled: its outbox was sent, and the messages that it
// took were deleted. Workers that do not know this do not call it.
func (s *State) Settle() { s.memory.last = batch{} }
