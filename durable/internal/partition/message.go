package partition

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// message is a pending message for an instance. work.mu protects the fields that change.
type message struct {
	number uint64 // its key and its place in the order of all messages
	due    time.Time
	size   int // of the record, in bytes
	route

	// body is the record, if it is at most maxInMemory bytes or unstored. It is nil if the record
	// is larger, and after Open; load reads it then.
	body []byte

	// unstored means that the message is the result of activity and has no record of its own
	// yet. Until it has, the activity's record stands for it.
	unstored bool
	activity *activity
	answer   func() // completes the operation that stores the message

	// deleted means that a transaction consumed or discarded the message.
	deleted bool
	// inFlight means that a session holds the message.
	inFlight bool
	// alarm is set until the message is due. slot is its index in the instance's timers.
	alarm *alarm
	slot  int
}

// maxInMemory is the maximum size, in bytes, of a record that is kept in memory while it is
// pending.
const maxInMemory = 512

func bodyInMemory(record []byte) []byte {
	if len(record) > maxInMemory {
		return nil
	}
	return record
}

// isTimer reports whether the message's record is in timersTable.
func (m *message) isTimer() bool { return !m.due.IsZero() }

func (m *message) isStart() bool { return m.kind == history.TypeExecutionStarted }

// endsPause reports whether the message ends the pause of its instance. Such a message takes
// effect even if this worker lacks the instance's code.
func (m *message) endsPause() bool {
	return m.kind == history.TypeExecutionTerminated || m.kind == history.TypeExecutionSuspended || m.kind == history.TypeExecutionResumed
}

// isTrusted reports whether the message completes an action that was stored in the same
// transaction as the message or its activity.
func (m *message) isTrusted() bool {
	return (m.isTimer() || m.activity != nil) && m.target.ExecutionID != ""
}

// load returns the decoded message.
func (m *message) load(t tables) (provider.TaskMessage, error) {
	b := m.body
	if b == nil {
		var err error
		if b, err = t.Must(m.recordKey()); err != nil {
			return provider.TaskMessage{}, err
		}
	}
	msg, err := decodeMessage(b)
	if err != nil {
		return msg, t.Damage(messagesTable, logstore.NumberKey(m.number), err)
	}
	return msg, nil
}

// recordKey returns the table and the key of the record that holds the message or stands for it.
func (m *message) recordKey() (logstore.Table, []byte) {
	switch {
	case m.unstored:
		return activitiesTable, logstore.NumberKey(m.activity.number)
	case m.isTimer():
		return timersTable, timerKey(m.due, m.number)
	}
	return messagesTable, logstore.NumberKey(m.number)
}
