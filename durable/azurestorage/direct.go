package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Direct results
//
// An activity may run in the process that owns the partition of its instance. Its result is then
// delivered to the instance in memory, without a message. The work item stays in its queue, hidden,
// until the checkpoint with the result is committed. If the process dies before that, the work item
// reappears and the activity runs again.
//
// If the result cannot be delivered, because the episode failed, the partition was lost or the
// worker stops, it is sent as a message. The work item is then deleted.

// directResult is the [safety] of the result of an activity of this process. The result is in no
// queue.
type directResult struct {
	inQueue   // of the work item
	sender    *sender
	partition controlQueue
	env       *wire.Envelope
}

// deliverResult delivers the result in env to its instance. It returns false if the result must be
// sent as a message.
func (s *sender) deliverResult(p controlQueue, item *delivery, env *wire.Envelope) (bool, error) {
	if !p.Reserve() {
		return false, nil
	}
	d, err := s.newDirectResult(p, item, env)
	if err == nil && p.Arrive(d) {
		return true, nil
	}
	p.Unclaim()
	return false, err
}

func (s *sender) newDirectResult(p controlQueue, item *delivery, env *wire.Envelope) (*delivery, error) {
	text, err := encode(env)
	if err != nil {
		return nil, err
	}
	asReceived, err := wire.DecodeEnvelopeJSON(text)
	if err != nil {
		return nil, err
	}
	d := s.held.direct(item.queue, store.Message{ID: item.id(), DequeueCount: 1}, item.lock, asReceived, p.Unclaim)
	d.safety = &directResult{inQueue: inQueue{d: item}, sender: s, partition: p, env: asReceived}
	return d, nil
}

// remove implements [safety]. It deletes the work item.
func (r *directResult) remove(ctx context.Context) error { return r.d.remove(ctx) }

// release implements [safety]. It sends the result as a message that is visible after delay, and
// deletes the work item. If that fails, the activity runs again.
func (r *directResult) release(ctx context.Context, delay time.Duration) {
	message := provider.TaskMessage{Event: r.env.Message.Event, Target: r.env.Message.Target}
	sent, err := r.sender.post(ctx, &outgoing{
		to: r.partition, delay: delay, duplicates: true,
		env: &wire.Envelope{Message: &message, Episode: r.env.Episode, Sender: r.env.Sender, Scheduled: r.env.Scheduled},
	})
	if err != nil {
		r.sender.Log.Warn("cannot send the result of an activity; the activity runs again", r.d.attrs("error", err)...)
		r.d.release(ctx, 0)
		return
	}
	if delay == 0 {
		sent.to.Announce()
	}
	r.d.discard(ctx)
}

// markCommitted implements [safety]. If the activity runs again, the history has its result.
func (r *directResult) markCommitted() {}
