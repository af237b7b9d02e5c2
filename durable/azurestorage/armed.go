package azurestorage

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An armedMessage is in its queue and hidden. It becomes visible when it is
// released or, if this process dies before, by itself.
type armedMessage struct {
	partition *partition
	msg       store.Message
}

// armedForDefault is how long an armed message is hidden: longer than it takes
// to get to its release.
const armedForDefault = 30 * time.Second

// arm puts messages into their queues, hidden. Several copies must do no harm.
func (h *TaskHub) arm(ctx context.Context, messages []provider.TaskMessage) ([]armedMessage, error) {
	armed := make([]armedMessage, len(messages))
	for i := range messages {
		p := h.partitionOf(messages[i].Target.InstanceID)
		env := &wire.Envelope{Message: &messages[i], Sender: &history.OrchestrationInstance{}}
		out := &outgoing{queue: p.queue, partition: p, env: env}
		if err := h.prepare(ctx, out); err != nil {
			return nil, err
		}
		m, err := p.queue.Put(ctx, out.text, h.armedFor, true)
		if err != nil {
			return nil, err
		}
		h.logSent(p.queue, env)
		armed[i] = armedMessage{partition: p, msg: store.Message{ID: m.ID, Receipt: m.Receipt, Text: out.text}}
	}
	return armed, nil
}

// release makes messages visible. What fails becomes visible by itself.
func (h *TaskHub) release(ctx context.Context, armed []armedMessage) {
	for _, a := range armed {
		if _, err := a.partition.queue.Update(ctx, a.msg, 0); err != nil && !store.IsGone(err) {
			h.log.Warn("message could not be released, it comes by itself",
				"partition", a.partition.queue.Name, "messageId", a.msg.ID, "after", h.armedFor, "error", err)
			continue
		}
		h.wake(sentMessage{partition: a.partition})
	}
}
