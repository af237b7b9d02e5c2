package outbound

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
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

// directResult is the [inflight.Safety] of the result of an activity of this process. The result is in no
// queue.
type directResult struct {
	inflight.InQueue // of the work item
	sender           *Sender
	partition        ControlQueue
	env              *wire.Envelope
}

// DeliverResult delivers the result in env to its instance. It returns false if the result must be
// sent as a message.
func (s *Sender) DeliverResult(p ControlQueue, item *inflight.Delivery, env *wire.Envelope) (bool, error) {
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

func (s *Sender) newDirectResult(p ControlQueue, item *inflight.Delivery, env *wire.Envelope) (*inflight.Delivery, error) {
	text, err := encode(env)
	if err != nil {
		return nil, err
	}
	asReceived, err := wire.DecodeEnvelopeJSON(text)
	if err != nil {
		return nil, err
	}
	d := s.Held.Direct(item.Queue, store.Message{ID: item.ID(), DequeueCount: 1}, item.VisibilityTimeout, asReceived, p.Unclaim)
	d.Safety = &directResult{InQueue: inflight.InQueue{Delivery: item}, sender: s, partition: p, env: asReceived}
	return d, nil
}

// Remove implements [inflight.Safety]. It deletes the work item.
func (r *directResult) Remove(ctx context.Context) error { return r.Delivery.Remove(ctx) }

// Release implements [inflight.Safety]. It sends the result as a message that is visible after delay, and
// deletes the work item. If that fails, the activity runs again.
func (r *directResult) Release(ctx context.Context, delay time.Duration) {
	message := provider.TaskMessage{Event: r.env.Message.Event, Target: r.env.Message.Target}
	err := r.sender.redeliver(ctx, &Message{
		To: r.partition, Delay: delay, Duplicates: true,
		Env: &wire.Envelope{Message: &message, Episode: r.env.Episode, Sender: r.env.Sender, Scheduled: r.env.Scheduled},
	})
	if err != nil {
		r.sender.Log.Warn("cannot send the result of an activity; the activity runs again", r.Delivery.Attrs("error", err)...)
		r.Delivery.Release(ctx, 0)
		return
	}
	r.Delivery.Discard(ctx)
}

// MarkCommitted implements [inflight.Safety]. If the activity runs again, the history has its result.
func (r *directResult) MarkCommitted() {}
