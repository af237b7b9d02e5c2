package azurestorage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// A message for a queue that this process serves is put into the queue hidden,
// as if it had been received already, and handed over in memory. That spares the
// receive and the time until somebody looks.
//
//  1. It is handed over only when that which sent it counts: a checkpoint's
//     messages after its history was written, a start after its row.
//  2. While it waits for that and while it is worked on its hiding is renewed,
//     like that of a message that was received. A process that dies lets it
//     appear within the time of a lease.
//  3. If the checkpoint does not count it is deleted. If it cannot be handed over
//     any more, because the partition was lost or the worker stops, it is made
//     visible at once.
//  4. It never overtakes what is visible in its queue: messages are claimed only
//     while the last look at the queue has found all there was.

// backlog knows whether a queue may hold visible messages that this process has
// not received. Others guard it.
type backlog struct {
	missed int // times that there was reason to believe so
	seen   int // those before the last look that left nothing
}

// add notes that there may be more messages than were received.
func (b *backlog) add() { b.missed++ }

// looked notes that a look which began when missed had the given value, and
// asked for a number of messages, got some.
func (b *backlog) looked(missed, got, wanted int) {
	if got < wanted {
		b.seen = missed
	} else {
		b.add()
	}
}

func (b *backlog) isEmpty() bool { return b.seen == b.missed }

// claim reserves room for n messages to the partition that will be handed over
// in memory; false means that they have to go the usual way.
func (p *partition) claim(n int) bool {
	if n == 0 || !p.isListening() {
		return false
	}
	p.mu.Lock()
	empty := p.backlog.isEmpty()
	p.mu.Unlock()
	return empty && p.hub.inbox.buffer.tryTake(n)
}

// fallBehind notes that the queue has messages which were not received.
func (p *partition) fallBehind() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.add()
}

func (p *partition) missed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backlog.missed
}

// lookedAt is backlog.looked.
func (p *partition) lookedAt(missed, got, wanted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.looked(missed, got, wanted)
}

// admit takes claimed messages in, as if they had been received now, before what
// their sender sends next. What the partition cannot take any more becomes visible.
func (p *partition) admit(ctx context.Context, claimed []*delivery) {
	inOrder := func(a, b *delivery) int { return cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber) }
	slices.SortFunc(claimed, inOrder)
	r := p.currentReading()
	if r == nil || !r.run(func() { p.arrive(r, claimed...) }) {
		handBackAll(ctx, claimed)
	}
}

// claim reserves up to n slots for activities that will be handed over in
// memory, and returns how many.
func (q *activityQueue) claim(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || !q.backlog.isEmpty() || q.waiting == 0 && len(q.items) > 0 {
		return 0
	}
	n = max(min(n, q.free), 0)
	q.free -= n
	return n
}

// lookedAt is backlog.looked.
func (q *activityQueue) lookedAt(missed, got, wanted int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog.looked(missed, got, wanted)
}

// fallBehind notes that the queue has messages which were not received.
func (q *activityQueue) fallBehind() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog.add()
}

// admit takes claimed messages in. Once nothing is handed out any more they
// become visible.
func (q *activityQueue) admit(ctx context.Context, claimed []*delivery) {
	q.mu.Lock()
	closed := q.closed
	if !closed {
		q.items = append(q.items, claimed...)
		q.ring()
	}
	q.mu.Unlock()
	if closed {
		handBackAll(ctx, claimed)
	}
}

// claimable reports whether a message that becomes due after delay may be handed
// over in memory: what is due later is better off in its queue.
func (h *TaskHub) claimable(delay time.Duration) bool { return delay <= h.controlLock()/2 }

// newClaim returns the delivery of a message that was put into a queue, hidden. It is renewed from now on.
func (h *TaskHub) newClaim(out *outgoing, m store.Message) *delivery {
	lock, settled := h.controlLock(), func() { h.inbox.buffer.give(1) }
	if out.partition == nil {
		lock, settled = h.workItemLock(), h.activities.give
	}
	d := h.newDelivery(out.queue, m, lock, settled)
	d.env, d.claimed = out.asReceived, true
	h.held.add(d)
	return d
}

// unclaim gives the room back that was reserved for a message which was not put
// into its queue.
func (h *TaskHub) unclaim(out *outgoing) {
	if out.partition == nil {
		h.activities.give()
		return
	}
	h.inbox.buffer.give(1)
}

// handOver makes what was sent be worked on, once it may be: claimed messages
// are taken in, and queues that got others are looked at.
func (h *TaskHub) handOver(ctx context.Context, sent []sentMessage) {
	ctx, cancel := settling(ctx)
	defer cancel()
	var activities []*delivery
	claimed := map[*partition][]*delivery{}
	var partitions []*partition // in the order in which they occur
	for _, m := range sent {
		switch {
		case m.queue == nil: // it was not sent
		case m.claimed == nil:
			h.wake(m)
		case m.partition == nil:
			activities = append(activities, m.claimed)
		default:
			if claimed[m.partition] == nil {
				partitions = append(partitions, m.partition)
			}
			claimed[m.partition] = append(claimed[m.partition], m.claimed)
		}
	}
	for _, p := range partitions {
		p.admit(ctx, claimed[p])
	}
	if len(activities) > 0 {
		h.activities.admit(ctx, activities)
	}
}
