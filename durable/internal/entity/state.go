package entity

import (
	"encoding/json"
	"fmt"
)

// A State is what is stored of an entity: its own state, and what the scheduler
// has to know of its messages
// (DurableTask.Core/Entities/StateFormat/SchedulerState.cs). The zero State is
// that of an entity that never got a message.
type State struct {
	Text      *string // the entity's own state; nil if it does not exist
	queue     []*Request
	lockedBy  string
	suspended bool
	sorter    Sorter

	// These are not DurableTask's, whose readers ignore them: the ID and the origin of
	// the lock request that was granted last to lockedBy, what came, and what is to be
	// sent.
	lockID     string
	lockOrigin string
	memory     memory
	outbox     []Message
}

// Encode returns s as JSON text. "exists" is for the extension's older
// scheduler, to which an entity without it does not exist, whatever its state
// (the extension's EntityScheduler/SchedulerState.cs).
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
	w.messages("outbox", s.outbox)
	w.close()
	return string(w.buf)
}

// DecodeState reads what is stored of an entity, in either dialect. Nil is the
// zero State.
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
		sorter: wire.Sorter, lockID: wire.LockID, lockOrigin: wire.LockOrigin, memory: wire.Memory, outbox: messagesOf(wire.Outbox),
	}
	for _, r := range wire.Queue {
		if r != nil {
			s.queue = append(s.queue, r)
		}
	}
	return s, nil
}

// StateText returns an entity's own state from what is stored of it, nil if the
// entity does not exist.
func StateText(input *string) (*string, error) {
	s, err := DecodeState(input)
	if err != nil {
		return nil, err
	}
	return s.Text, nil
}

// Status returns what clients see of s without reading it.
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

// IsEmpty reports whether nothing is known of the entity but what its sorter
// remembers: it can be cleaned up once that is older than the reorder window.
func (s Status) IsEmpty() bool { return s == Status{} }

// ParseStatus reads the custom status of an entity's instance. Nil is the zero
// Status.
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

// Send has s keep the messages of a batch, which are to be sent once s is stored,
// and returns what is to be sent then. If a worker may have died in between, they
// are sent again: then none is lost, and what others know of the entity follows
// from stored states only. Who gets a message a second time knows it by its ID.
//
// So the messages of earlier batches are among what is returned if something
// that those took has come again: they were not settled, since what was taken is
// deleted after everything is sent. Those of the last batch are also if lastToo
// is set.
//
// DurableTask sends first. Then an answer may tell of a state that never came to
// be, and a lock may have been granted that is not held.
func (s *State) Send(messages []Message, lastToo bool) []Message {
	s.outbox = append(s.memory.unsent(lastToo), messages...)
	return s.outbox
}

// Settle notes that what the last batch was to send was sent, and that what it
// took does not come again. Whoever does not know that does not call it.
func (s *State) Settle() { s.outbox, s.memory.taken = nil, nil }
