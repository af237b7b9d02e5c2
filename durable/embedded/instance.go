package embedded

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An instance is what is in memory of an orchestration instance that has
// messages, or timers, or is in somebody's hands. Its fields are protected by
// Hub.mu.
type instance struct {
	id string

	// inbox holds the messages that may be handed out, by number.
	inbox []*message
	// held holds those that cannot be yet: what completes an action that the
	// history does not have, and all that comes before a start that is not due.
	held []*message
	// timers holds messages that are not due, in no order.
	timers []*message

	session *session
	ready   bool // is among Hub.ready
	// attempts counts the sessions since the last that got on.
	attempts int
	// pause is set after the instance was abandoned: until it rings the instance
	// is not handed out.
	pause *alarm
}

// instance returns the instance with the given ID. mu is locked.
func (h *Hub) instance(id string) *instance {
	inst := h.instances[id]
	if inst == nil {
		inst = &instance{id: id}
		h.instances[id] = inst
	}
	return inst
}

// consider makes an instance ready if it can be handed out, tells its session
// if that waits for messages, and forgets it if there is nothing to remember.
// It is called after whatever may have changed that. mu is locked.
func (h *Hub) consider(inst *instance) {
	switch {
	case inst.session != nil:
		if len(inst.inbox) > 0 {
			post(inst.session.arrived)
		}
	case inst.ready || inst.pause != nil:
	case len(inst.inbox) > 0:
		inst.ready = true
		h.ready.push(inst)
		post(h.instanceReady)
	case len(inst.held) == 0 && len(inst.timers) == 0:
		if h.instances[inst.id] == inst {
			delete(h.instances, inst.id)
		}
	}
}

// deliver adds a message to what its instance may be handed. mu is locked.
func (h *Hub) deliver(m *message) {
	inst := h.instance(m.target.InstanceID)
	inst.add(m)
	if m.starts() {
		inst.reconsiderHeld()
	}
	h.consider(inst)
}

// add puts a message into the inbox, at its place.
func (inst *instance) add(m *message) {
	at := len(inst.inbox)
	for at > 0 && inst.inbox[at-1].number > m.number {
		at--
	}
	inst.inbox = slices.Insert(inst.inbox, at, m)
}

// reconsiderHeld lets held messages be looked at again.
func (inst *instance) reconsiderHeld() {
	for _, m := range inst.held {
		inst.add(m)
	}
	inst.held = nil
}

// giveBack returns messages that were handed out to the inbox. mu is locked.
func (inst *instance) giveBack(taken []*message) {
	for _, m := range taken {
		m.taken = false
		if !m.gone {
			inst.add(m)
		}
	}
}

// wait delivers a message when it is due. mu is locked.
func (h *Hub) wait(m *message) {
	inst := h.instance(m.target.InstanceID)
	m.slot = len(inst.timers)
	inst.timers = append(inst.timers, m)
	m.alarm = h.setAlarm(m.due, func() {
		inst.removeTimer(m)
		h.deliver(m)
	})
}

func (inst *instance) removeTimer(m *message) {
	last := inst.timers[len(inst.timers)-1]
	inst.timers[m.slot] = last
	last.slot = m.slot
	inst.timers[len(inst.timers)-1] = nil
	inst.timers = inst.timers[:len(inst.timers)-1]
	m.alarm = nil
}

// forget removes a message that was consumed. mu is locked.
func (h *Hub) forget(m *message) {
	if m.gone {
		return
	}
	inst := h.withdraw(m)
	if m.activity != nil {
		h.activityDone(m.activity)
	}
	if m.persist != nil {
		h.writer.Answer(m.persist, nil)
	}
	if inst != nil {
		h.consider(inst)
	}
}

// withdraw takes a message out of wherever it is, unless a session has it, and
// returns its instance if that is in memory. mu is locked.
func (h *Hub) withdraw(m *message) *instance {
	m.gone = true
	inst := h.instances[m.target.InstanceID]
	switch {
	case inst == nil || m.taken:
	case m.alarm != nil:
		h.stopAlarm(m.alarm)
		inst.removeTimer(m)
	default:
		same := func(other *message) bool { return other == m }
		inst.inbox = slices.DeleteFunc(inst.inbox, same)
		inst.held = slices.DeleteFunc(inst.held, same)
	}
	return inst
}

// maxMessages is how many messages are handed out at once, so that no episode
// has to be made durable that is larger than need be.
const maxMessages = 1000

// take removes the next messages to hand out from the inbox. A start comes
// first, though it may not have come first. mu is locked.
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
	rest := copy(inst.inbox, inst.inbox[n:])
	clear(inst.inbox[rest:])
	if inst.inbox = inst.inbox[:rest]; rest == 0 && cap(inst.inbox) > 64 {
		inst.inbox = nil
	}
	for _, m := range taken {
		m.taken = true
	}
	return taken
}

// abandonDelay returns how long after the given attempt, counted from 1, work
// is handed out again (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs,
// AbandonMessageAsync: the delay doubles up to a limit).
func (h *Hub) abandonDelay(attempt int) time.Duration {
	d := h.config.AbandonDelay
	for ; attempt > 1 && d < h.config.MaxAbandonDelay; attempt-- {
		d *= 2
	}
	return min(d, h.config.MaxAbandonDelay)
}

// againAt returns when to hand out again what was abandoned for a cause.
func (h *Hub) againAt(attempt int, cause error) time.Time {
	now := time.Now()
	return now.Add(provider.AbandonDelay(cause, now, h.abandonDelay(attempt)))
}

// pauseInstance keeps an instance from being handed out for a while. mu is
// locked.
func (h *Hub) pauseInstance(inst *instance, cause error) {
	inst.attempts++
	h.stopAlarm(inst.pause)
	inst.pause = h.setAlarm(h.againAt(inst.attempts, cause), func() {
		inst.pause = nil
		h.consider(inst)
	})
}

// A fifo is a queue whose space is used again.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

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
