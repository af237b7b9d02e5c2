package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// The result of an activity that ran in the process which owns the partition of
// the waiting instance is handed to the instance in memory. No message carries
// it; the work item stays in its queue, hidden, until the checkpoint that
// contains the result is written. If this process dies before, the work item
// appears and the activity runs again.
//
// Whenever the result cannot be taken at once after all, because the episode
// failed, the partition was lost or the worker stops, it is sent as a message,
// and the work item is deleted then.

// directResult is what makes a delivery one of a result that is not a message.
type directResult struct {
	partition *partition
	item      *delivery // the work item
}

// completeDirectly hands the result in env to the instance that waits for it;
// false means that it has to be sent.
func (h *TaskHub) completeDirectly(p *partition, item *delivery, env *wire.Envelope) (bool, error) {
	r := p.currentReading()
	if r == nil || !p.isListening() || !h.inbox.buffer.tryTake(1) {
		return false, nil
	}
	d, err := h.newDirect(p, item, env)
	if err != nil {
		h.inbox.buffer.give(1)
		return false, err
	}
	if !r.run(func() { r.arrive(d) }) {
		h.inbox.buffer.give(1)
		return false, nil
	}
	return true, nil
}

func (h *TaskHub) newDirect(p *partition, item *delivery, env *wire.Envelope) (*delivery, error) {
	text, err := encode(env)
	if err != nil {
		return nil, err
	}
	asReceived, err := wire.DecodeEnvelopeJSON(text)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &delivery{
		hub: h, queue: item.queue, msg: store.Message{ID: item.id()}, env: asReceived, lock: item.lock,
		dequeueCount: 1, insertedOn: now, receivedAt: now,
		onSettled: func() { h.inbox.buffer.give(1) },
		claimed:   true,
		direct:    &directResult{partition: p, item: item},
	}, nil
}

// send sends the result after all, to be received after delay. If that fails the
// activity runs again.
func (r *directResult) send(ctx context.Context, env *wire.Envelope, delay time.Duration) {
	h := r.item.hub
	message := provider.TaskMessage{Event: env.Message.Event, Target: env.Message.Target}
	sent, err := h.sender.post(ctx, &outgoing{
		queue: r.partition.queue, partition: r.partition, delay: delay, duplicates: true,
		env: &wire.Envelope{Message: &message, Episode: env.Episode, Sender: env.Sender, Scheduled: env.Scheduled},
	})
	if err != nil {
		h.log.Warn("result of an activity could not be sent; the activity runs again", r.item.attrs("error", err)...)
		r.item.handBack(ctx, 0)
		return
	}
	if delay == 0 {
		h.sender.wake(sent)
	}
	r.item.discard(ctx)
}
