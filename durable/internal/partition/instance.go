package partition

import (
	"slices"
	"time"
)

// instance is an orchestration instance in memory: one that has messages or
// timers, or that is locked. work.mu protects its fields.
type instance struct {
	id string

	// inbox holds the messages to dispatch, in the order of their numbers.
	inbox []*message
	// early holds messages that cannot be dispatched yet: completions of actions that
	// the history does not have, and messages before a start that is not due.
	early []*message
	// timers holds messages that are not due, in no order.
	timers []*message

	session *session
	ready   bool      // is among work.ready
	since   time.Time // when it became ready
	// attempts counts the sessions since the last one that committed.
	attempts int
	// pause is set after the instance was abandoned. Until it fires the instance is
	// not dispatched.
	pause *alarm
}

// add puts a message into the inbox, in the order of numbers.
func (inst *instance) add(m *message) {
	at := len(inst.inbox)
	for at > 0 && inst.inbox[at-1].number > m.number {
		at--
	}
	inst.inbox = slices.Insert(inst.inbox, at, m)
}

// remove removes a message that is not a timer.
func (inst *instance) remove(m *message) {
	same := func(other *message) bool { return other == m }
	inst.inbox = slices.DeleteFunc(inst.inbox, same)
	inst.early = slices.DeleteFunc(inst.early, same)
}

func (inst *instance) removeTimer(m *message) {
	last := inst.timers[len(inst.timers)-1]
	inst.timers[m.slot] = last
	last.slot = m.slot
	inst.timers[len(inst.timers)-1] = nil
	inst.timers = inst.timers[:len(inst.timers)-1]
	m.alarm = nil
}

// retryEarly puts the early messages into the inbox again.
func (inst *instance) retryEarly() {
	for _, m := range inst.early {
		inst.add(m)
	}
	inst.early = nil
}

// requeue returns messages that were in flight to the inbox.
func (inst *instance) requeue(inFlight []*message) {
	for _, m := range inFlight {
		m.inFlight = false
		if !m.deleted {
			inst.add(m)
		}
	}
}

// maxMessages bounds the messages that are dispatched at once, so that episodes do
// not get too large.
const maxMessages = 1000

// take removes the next messages to dispatch from the inbox. A start is first, in
// whatever order the messages came. Messages that end pauses are among them, so that they
// reach an instance whose many messages are held back.
func (inst *instance) take() []*message {
	n := min(len(inst.inbox), maxMessages)
	taken := make([]*message, 0, n)
	start := slices.IndexFunc(inst.inbox, (*message).starts)
	if start >= 0 {
		taken = append(taken, inst.inbox[start])
		inst.inbox = slices.Delete(inst.inbox, start, start+1)
		n--
	}
	taken = append(taken, inst.inbox[:n]...)
	rest := 0
	for _, m := range inst.inbox[n:] {
		if m.controls() {
			taken = append(taken, m)
			continue
		}
		inst.inbox[rest] = m
		rest++
	}
	clear(inst.inbox[rest:])
	if inst.inbox = inst.inbox[:rest]; rest == 0 && cap(inst.inbox) > 64 {
		inst.inbox = nil
	}
	for _, m := range taken {
		m.inFlight = true
	}
	return taken
}

// fifo is a queue whose space is used again.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// waiting returns what is in the queue, the first first.
func (q *fifo[T]) waiting() []T { return q.items[q.head:] }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}
