package inflight

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
)

// A Safety keeps a delivered message until its effects are stored, so that a crash of this process
// does not lose it.
//
//	delivery                safety          after a crash
//	received, or claimed    InQueue         The message is hidden in its queue and reappears.
//	result of an activity   directResult    The work item reappears, and the activity runs again.
//	start of a client       Direct          The row stays Pending, and a worker sends the start again.
//	event of a client       Direct          The client's call has not returned, unless the event is in its
//	                                        queue. It is enqueued on demand: see Enqueue.
type Safety interface {
	// Remove ends the delivery after its effects are stored. After an error the message is
	// redelivered.
	Remove(ctx context.Context) error
	// Release ends the delivery without effects: the message is redelivered after delay.
	Release(ctx context.Context, delay time.Duration)
	// Acknowledge ends the call of the client that sent the message, because it is durable.
	Acknowledge()
	// MarkCommitted records that the history has the message, although it is going to be released.
	MarkCommitted()
	// MarkMaybeCommitted records that the history may have the message.
	MarkMaybeCommitted()
	// IsRedelivered reports whether the message is delivered again after a crash.
	IsRedelivered() bool
	// IsAwaitedByOthers reports whether the message must be in its queue before its checkpoint sends
	// messages to other instances.
	IsAwaitedByOthers() bool
	// Enqueue makes the message redelivered after a crash.
	Enqueue(ctx context.Context) error
	// IsLost reports whether another worker may have received the message.
	IsLost(now clocks.Moment) bool
}

// InQueue is the safety of a message that is hidden in its queue.
type InQueue struct{ Delivery *Delivery }

// Remove implements [Safety].
func (q InQueue) Remove(ctx context.Context) error {
	d, deleted := q.Delivery, false
	defer func() {
		d.mu.Lock()
		d.redeliverable = !deleted
		d.mu.Unlock()
		if !deleted {
			d.held.spend(d, spentMessage{})
		}
	}()
	return d.change(ctx, func(m store.Message) (store.Message, error) {
		gone, err := d.Queue.Remove(d.whileHidden(ctx), m.ID, m.Receipt)
		deleted = err == nil && !gone
		if gone {
			d.held.Routine.Record("MessageGone", d.Attrs("details", "it was deleted, or another worker received it"))
		}
		return m, err
	})
}

// Release implements [Safety].
func (q InQueue) Release(ctx context.Context, delay time.Duration) {
	d := q.Delivery
	d.mu.Lock()
	d.releasing = true
	d.mu.Unlock()
	err := d.change(ctx, func(m store.Message) (store.Message, error) { return d.Queue.Update(d.whileHidden(ctx), m, delay) })
	switch {
	case err == nil:
		d.keepReceipt()
	case store.IsMessageGone(err):
		d.held.Routine.Record("MessageGone", d.Attrs("details", err.Error()))
	default:
		d.held.Log.Warn("cannot release message; it reappears when its visibility timeout ends", d.Attrs("after", d.VisibilityTimeout, "error", err)...)
	}
}

// Acknowledge implements [Safety]. No call waits for the message.
func (q InQueue) Acknowledge() {}

// MarkCommitted implements [Safety]. The state of an entity records the messages that it consumed.
func (q InQueue) MarkCommitted() {
	if id := q.Delivery.Target().InstanceID; !history.IsEntity(id) {
		q.Delivery.held.spend(q.Delivery, spentMessage{repair: id})
	}
}

// MarkMaybeCommitted implements [Safety]. The receiver compares the message with the history.
func (q InQueue) MarkMaybeCommitted() {}

// IsRedelivered implements [Safety].
func (q InQueue) IsRedelivered() bool { return true }

// IsAwaitedByOthers implements [Safety].
func (q InQueue) IsAwaitedByOthers() bool { return false }

// Enqueue implements [Safety].
func (q InQueue) Enqueue(context.Context) error { return nil }

// IsLost implements [Safety].
func (q InQueue) IsLost(now clocks.Moment) bool {
	q.Delivery.mu.Lock()
	defer q.Delivery.mu.Unlock()
	return q.Delivery.lost || q.Delivery.until.Left(now) < 0
}
