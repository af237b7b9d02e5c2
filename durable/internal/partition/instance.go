package partition

import (
	"slices"
	"time"
)

// instance is an instance in memory: it has messages or timers, or it is locked. work.mu
// protects its fields.
type instance struct {
	id string

	// inbox holds the messages to dispatch, by number.
	inbox []*message
	// early holds messages that cannot be dispatched yet. These are completions of actions that
	// are not in the history, messages that precede a start that is not due, and starts while steps
	// run.
	early []*message
	// timers holds messages that are not due, unordered.
	timers []*message

	session *session
	ready   bool      // is in work.ready
	since   time.Time // when it became ready
	// attempts counts the sessions since the last one that committed.
	attempts int
	// pause is set while an abandoned instance waits for its retry.
	pause *alarm
}

// add inserts a message into the inbox by its number.
func (inst *instance) add(m *message) {
	at := len(inst.inbox)
	for at > 0 && inst.inbox[at-1].number > m.number {
		at--
	}
	inst.inbox = slices.Insert(inst.inbox, at, m)
}

// remove removes a message from the inbox or the early messages.
func (inst *instance) remove(m *message) {
	same := func(other *message) bool { return other == m }
	inst.inbox = slices.DeleteFunc(inst.inbox, same)
	inst.early = slices.DeleteFunc(inst.early, same)
}

// storedMessages returns the number of messages to all instances, including those in flight or not due.
func storedMessages(all map[string]*instance) (n int) {
	for _, inst := range all {
		n += len(inst.inbox) + len(inst.early) + len(inst.timers)
		if inst.session != nil {
			n += len(inst.session.inFlight)
		}
	}
	return n
}

func (inst *instance) removeTimer(m *message) {
	last := inst.timers[len(inst.timers)-1]
	inst.timers[m.slot] = last
	last.slot = m.slot
	inst.timers[len(inst.timers)-1] = nil
	inst.timers = inst.timers[:len(inst.timers)-1]
	m.alarm = nil
}

// retryEarly moves the early messages to the inbox.
func (inst *instance) retryEarly() {
	for _, m := range inst.early {
		inst.add(m)
	}
	inst.early = nil
}

// postponeStarts moves starts from the inbox to the early messages.
func (inst *instance) postponeStarts() {
	inst.inbox = slices.DeleteFunc(inst.inbox, func(m *message) bool {
		if m.isStart() {
			inst.early = append(inst.early, m)
		}
		return m.isStart()
	})
}

// requeue returns messages in flight to the inbox, except deleted ones.
func (inst *instance) requeue(inFlight []*message) {
	for _, m := range inFlight {
		m.inFlight = false
		if !m.deleted {
			inst.add(m)
		}
	}
}

// These limits bound the messages in one dispatch, and so the size of an episode. A checkpoint that exceeds the
// store's limit for a group would fail again after each dispatch.
const (
	maxMessages = 1000
	maxBytes    = 64 << 20 // of all records; a larger record is dispatched alone
)

// take removes the next messages to dispatch from the inbox and marks them as in flight. A
// start comes first, whatever its number. Messages that end a pause are always included: they
// must reach an instance that is held back with more messages than the limits allow.
func (inst *instance) take() []*message {
	taken, size := make([]*message, 0, min(len(inst.inbox), maxMessages)), 0
	start := slices.IndexFunc(inst.inbox, (*message).isStart)
	if start >= 0 {
		taken, size = append(taken, inst.inbox[start]), inst.inbox[start].size
		inst.inbox = slices.Delete(inst.inbox, start, start+1)
	}
	n := 0
	for ; n < min(len(inst.inbox), maxMessages-len(taken)); n++ {
		if size += inst.inbox[n].size; size > maxBytes && len(taken)+n > 0 {
			break
		}
	}
	taken = append(taken, inst.inbox[:n]...)
	rest := 0
	for _, m := range inst.inbox[n:] {
		if m.endsPause() {
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

// fifo is a queue that reuses its space.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// waiting returns the items in the queue, oldest first.
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
