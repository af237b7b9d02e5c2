package partition

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// message is a message for an instance. work.mu protects the fields that change.
type message struct {
	number uint64 // its place in the order of all messages, and its key
	due    time.Time
	route

	// body is the record of a message that is small or unstored; nil if it has to be
	// read.
	body []byte

	// unstored means that the message has no record of its own yet: it is the result
	// of activity, whose record stands for it.
	unstored bool
	activity *activity
	answer   func() // ends the operation that stores it

	// deleted means that the message was consumed or discarded.
	deleted bool
	// inFlight means that a session has the message.
	inFlight bool
	// alarm is set while the message is not due, and slot is its place among its
	// instance's timers.
	alarm *alarm
	slot  int
}

// maxKept is the size up to which a record is kept in memory while it is pending.
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

// controls reports whether the message ends the pause of its instance: its effect does not
// wait until code that was missing is deployed.
func (m *message) controls() bool {
	return m.kind == history.TypeExecutionTerminated || m.kind == history.TypeExecutionSuspended || m.kind == history.TypeExecutionResumed
}

// isTrusted reports whether the message completes what was scheduled in the
// transaction that stored it or its activity.
func (m *message) isTrusted() bool {
	return (m.isTimer() || m.activity != nil) && m.target.ExecutionID != ""
}

// load returns the message as it was sent.
func (m *message) load(t tables) (provider.TaskMessage, error) {
	b := m.body
	if b == nil {
		var err error
		if b, err = t.Must(m.place()); err != nil {
			return provider.TaskMessage{}, err
		}
	}
	msg, err := decodeMessage(b)
	if err != nil {
		return msg, t.Damage(messagesTable, logstore.NumberKey(m.number), err)
	}
	return msg, nil
}

// place returns the table and the key of the record that stands for the message.
func (m *message) place() (logstore.Table, []byte) {
	switch {
	case m.unstored:
		return activitiesTable, logstore.NumberKey(m.activity.number)
	case m.isTimer():
		return timersTable, timerKey(m.due, m.number)
	}
	return messagesTable, logstore.NumberKey(m.number)
}
