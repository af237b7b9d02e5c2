package embedded

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A message is one that is on its way to an instance. What is not immutable is
// protected by Hub.mu.
type message struct {
	number uint64 // its place in the order of all messages, and its key
	due    time.Time
	route

	// body is the record of a message that is small or not stored; nil if it is
	// to be read.
	body []byte

	// unstored says that the message has no record of its own yet: it is the
	// result of activity, whose record stands for it.
	unstored bool
	activity *activity
	persist  *logstore.Op[*txn] // stores it

	// gone says that the message was consumed or is not wanted.
	gone bool
	// taken says that a session has it.
	taken bool
	// alarm is set while the message is not due, and slot is its place among
	// its instance's timers.
	alarm *alarm
	slot  int
}

// maxKept is the size up to which a message's record is kept in memory while
// it waits.
const maxKept = 512

func keep(record []byte) []byte {
	if len(record) > maxKept {
		return nil
	}
	return record
}

// isTimer reports whether the message's record is among the timers.
func (m *message) isTimer() bool { return !m.due.IsZero() }

func (m *message) starts() bool { return m.kind == history.TypeExecutionStarted }

// vouched reports whether the message completes what was scheduled by the
// checkpoint that it or its activity came with.
func (m *message) vouched() bool {
	return (m.isTimer() || m.activity != nil) && m.target.ExecutionID != ""
}

// load returns the message as it was sent.
func (m *message) load(t tables) (provider.TaskMessage, error) {
	b := m.body
	if b == nil {
		var err error
		if b, err = m.record(t); err != nil {
			return provider.TaskMessage{}, err
		}
	}
	msg, err := decodeMessage(b)
	if err != nil {
		return msg, t.Damage(messagesTable, logstore.NumberKey(m.number), err)
	}
	return msg, nil
}

func (m *message) record(t tables) ([]byte, error) {
	return t.Must(m.place())
}

// place returns where what stands for the message is stored.
func (m *message) place() (logstore.Table, []byte) {
	switch {
	case m.unstored:
		return activitiesTable, logstore.NumberKey(m.activity.number)
	case m.isTimer():
		return timersTable, timerKey(m.due, m.number)
	}
	return messagesTable, logstore.NumberKey(m.number)
}
