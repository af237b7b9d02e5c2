package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
)

// A safety keeps a delivered message until its effects are stored, so that a crash of this process
// does not lose it.
//
//	delivery                safety          after a crash
//	received, or claimed    inQueue         The message is hidden in its queue and reappears.
//	result of an activity   directResult    The work item reappears, and the activity runs again.
//	start of a client       directDelivery  The row stays Pending, and a worker sends the start again.
//	event of a client       directDelivery  The client's call has not returned, unless the event is in its
//	                                        queue. It is enqueued on demand: see enqueue.
type safety interface {
	// remove ends the delivery after its effects are stored. After an error the message is
	// redelivered.
	remove(ctx context.Context) error
	// release ends the delivery without effects: the message is redelivered after delay.
	release(ctx context.Context, delay time.Duration)
	// acknowledge ends the call of the client that sent the message, because it is durable.
	acknowledge()
	// markCommitted records that the history has the message, although it is going to be released.
	markCommitted()
	// markMaybeCommitted records that the history may have the message.
	markMaybeCommitted()
	// isRedelivered reports whether the message is delivered again after a crash.
	isRedelivered() bool
	// isAwaitedByOthers reports whether the message must be in its queue before its checkpoint sends
	// messages to other instances.
	isAwaitedByOthers() bool
	// enqueue makes the message redelivered after a crash.
	enqueue(ctx context.Context) error
	// isLost reports whether another worker may have received the message.
	isLost(now clocks.Moment) bool
}

// inQueue is the safety of a message that is hidden in its queue.
type inQueue struct{ d *delivery }

// remove implements [safety].
func (q inQueue) remove(ctx context.Context) error {
	d, deleted := q.d, false
	defer func() {
		d.mu.Lock()
		d.redeliverable = !deleted
		d.mu.Unlock()
		if !deleted {
			d.held.spend(d, spentMessage{})
		}
	}()
	return d.change(ctx, func(m store.Message) (store.Message, error) {
		gone, err := d.queue.Remove(d.whileHidden(ctx), m.ID, m.Receipt)
		deleted = err == nil && !gone
		if gone {
			d.held.Routine.Record("MessageGone", d.attrs("details", "it was deleted, or another worker received it"))
		}
		return m, err
	})
}

// release implements [safety].
func (q inQueue) release(ctx context.Context, delay time.Duration) {
	d := q.d
	d.mu.Lock()
	d.releasing = true
	d.mu.Unlock()
	err := d.change(ctx, func(m store.Message) (store.Message, error) { return d.queue.Update(d.whileHidden(ctx), m, delay) })
	switch {
	case err == nil:
		d.keepReceipt()
	case store.IsMessageGone(err):
		d.held.Routine.Record("MessageGone", d.attrs("details", err.Error()))
	default:
		d.held.Log.Warn("cannot release message; it reappears when its visibility timeout ends", d.attrs("after", d.lock, "error", err)...)
	}
}

// acknowledge implements [safety]. No call waits for the message.
func (q inQueue) acknowledge() {}

// markCommitted implements [safety]. The state of an entity records the messages that it consumed.
func (q inQueue) markCommitted() {
	if id := q.d.target().InstanceID; !history.IsEntity(id) {
		q.d.held.spend(q.d, spentMessage{repair: id})
	}
}

// markMaybeCommitted implements [safety]. The receiver compares the message with the history.
func (q inQueue) markMaybeCommitted() {}

// isRedelivered implements [safety].
func (q inQueue) isRedelivered() bool { return true }

// isAwaitedByOthers implements [safety].
func (q inQueue) isAwaitedByOthers() bool { return false }

// enqueue implements [safety].
func (q inQueue) enqueue(context.Context) error { return nil }

// isLost implements [safety].
func (q inQueue) isLost(now clocks.Moment) bool {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	return q.d.lost || q.d.until.Left(now) < 0
}
