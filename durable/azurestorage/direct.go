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

// directResult marks a delivery as the result of an activity of this process, which is in no queue.
type directResult struct {
	partition *partition
	item      *delivery // the work item
}

// completeDirectly delivers the result in env to its instance. It returns false if the result must
// be sent as a message.
func (h *TaskHub) completeDirectly(p *partition, item *delivery, env *wire.Envelope) (bool, error) {
	r := p.currentReading()
	if r == nil || !p.isListening() || !h.inbox.buffer.tryReserve(1) {
		return false, nil
	}
	d, err := h.newDirect(p, item, env)
	if err != nil {
		h.inbox.buffer.release(1)
		return false, err
	}
	if !r.run(func() { r.arrive(d) }) {
		h.inbox.buffer.release(1)
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
		onSettled: func() { h.inbox.buffer.release(1) },
		claimed:   true,
		result:    &directResult{partition: p, item: item},
	}, nil
}

// send sends the result as a message that is visible after delay, and deletes the work item. If
// that fails, the activity runs again.
func (r *directResult) send(ctx context.Context, env *wire.Envelope, delay time.Duration) {
	h := r.item.hub
	message := provider.TaskMessage{Event: env.Message.Event, Target: env.Message.Target}
	sent, err := h.sender.post(ctx, &outgoing{
		queue: r.partition.queue, partition: r.partition, delay: delay, duplicates: true,
		env: &wire.Envelope{Message: &message, Episode: env.Episode, Sender: env.Sender, Scheduled: env.Scheduled},
	})
	if err != nil {
		h.log.Warn("cannot send the result of an activity; the activity runs again", r.item.attrs("error", err)...)
		r.item.release(ctx, 0)
		return
	}
	if delay == 0 {
		h.sender.wake(sent)
	}
	r.item.discard(ctx)
}
