package azurestorage

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/hubcopy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A HiddenError means that [TaskHub.Export] cannot copy the hub: its queues contain hidden messages
// that the histories do not explain. IgnoreHidden in [provider.ExportOptions] skips them if Missing
// is 0.
type HiddenError struct {
	TaskHub string
	// Hidden counts the hidden messages that no history explains. The page on copies lists their
	// kinds.
	Hidden int
	// Missing counts messages that the histories require and that are not visible.
	Missing int
}

// Error names both numbers.
func (e *HiddenError) Error() string {
	return fmt.Sprintf("task hub %s: %d messages in its queues are hidden and cannot be read now, and %d messages that its histories require are missing",
		e.TaskHub, e.Hidden, e.Missing)
}

// copier returns the copier of the hub.
func (h *TaskHub) copier() *hubcopy.Hub {
	return &hubcopy.Hub{
		Name: h.cfg.TaskHub, Instances: h.instances, WorkItems: h.workItems, Queues: h.messageQueues(),
		QueueOf:     func(id string) *store.Queue { return h.partitionOf(id).Queue() },
		PoisonQueue: func(q *store.Queue) *store.Queue { return h.aside(q.Name) },
		HiddenFor:   max(h.cfg.ControlQueueVisibilityTimeout, h.cfg.WorkItemQueueVisibilityTimeout),
		Read:        h.decoder.Read,
		Send: func(ctx context.Context, q *store.Queue, env *wire.Envelope) error {
			_, err := h.sender.Send(ctx, h.destination(q), env)
			return err
		},
		HiddenError: func(hidden, missing int) error {
			return &HiddenError{TaskHub: h.cfg.TaskHub, Hidden: hidden, Missing: missing}
		},
		CheckIdle: h.resources.checkIdle, Log: h.Log,
	}
}

// destination returns the destination of a queue.
func (h *TaskHub) destination(q *store.Queue) outbound.Destination {
	for _, p := range h.partitions {
		if p.Queue() == q {
			return p
		}
	}
	return h.activities
}

// Export implements [provider.Portable].
//
// Hidden messages cannot be read. Export derives timers and scheduled starts from the histories and
// the rows instead. It waits until all other messages that the histories require are visible, for
// as long as a dead worker can have hidden them.
//
// Export receives the messages, which hides them for a few minutes, and makes them visible at the
// end.
func (h *TaskHub) Export(ctx context.Context, w provider.HubWriter, o provider.ExportOptions) error {
	if err := h.resources.checkExists(ctx); err != nil {
		return err
	}
	if err := h.resources.checkIdle(ctx); err != nil {
		return err
	}
	return h.copier().Export(ctx, w, o)
}

// Import implements [provider.Portable]. It writes all histories and rows before the first message,
// so that nothing runs in an incomplete copy.
func (h *TaskHub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	if err := h.resources.checkIdle(ctx); err != nil {
		return err
	}
	return h.copier().Import(ctx, fill)
}

// Totals implements [provider.Portable].
func (h *TaskHub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	if err := h.resources.checkExists(ctx); err != nil {
		return totals, err
	}
	return h.copier().Totals(ctx)
}
