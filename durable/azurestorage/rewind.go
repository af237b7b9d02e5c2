package azurestorage

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxRewindAttempts is how often a rewind is planned because somebody else
// changed what the plan before was made from, or because it is not known how
// far that got.
const maxRewindAttempts = 3

// Rewind implements [provider.Rewinder]. The rows of the history are changed as
// .NET changes them, but those of one execution together, and those of the
// execution that the sentinel names: .NET takes the one with the longest
// history, which can be one that was replaced. The sentinel gets another ETag, though
// nothing of it changes: a worker that is late to write that the execution has failed
// finds that the history has gone on
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// RewindHistoryAsync).
func (h *TaskHub) Rewind(ctx context.Context, id, reason string) error {
	if err := wire.CheckID(id); err != nil {
		return err
	}
	if err := h.resources.ensureCreated(ctx); err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := h.rewind(ctx, id, reason)
		if err == nil {
			return nil
		}
		if !store.IsConflict(err) && !store.IsTransient(err) || n == maxRewindAttempts || ctx.Err() != nil {
			return err
		}
	}
}

func (h *TaskHub) rewind(ctx context.Context, id, reason string) error {
	row, err := h.instances.Rows.Read(ctx, id)
	if err != nil {
		return err
	}
	// One that is pending and has never ended was started anew, and may have begun.
	if row != nil && (!provider.CanRewind(row.State.Status) || row.State.Status == history.Pending && row.State.CompletedAt.IsZero()) {
		return provider.ErrInstanceChanged
	}
	rows := map[string][]*wire.HistoryRow{} // by instance
	sentinels := map[string]string{}        // their ETags
	plan, err := provider.PlanRewind(ctx, id, reason, time.Now(), func(ctx context.Context, id string) ([]history.Event, error) {
		stored, current, err := h.instances.Histories.Current(ctx, id)
		rows[id], sentinels[id] = current, stored.ETag
		return stored.Events, err
	})
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		if x.Instance.InstanceID == id && row.IsReplacing(x.Instance) {
			return provider.ErrInstanceChanged
		}
	}
	for _, x := range plan.Executions {
		id := x.Instance.InstanceID
		if err := h.instances.Histories.Rewind(ctx, x, rows[id], sentinels[id]); err != nil {
			return fmt.Errorf("change history of %q: %w", id, err)
		}
	}
	armed, err := h.sender.arm(ctx, plan.Messages)
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		h.instances.Forget(x.Instance.InstanceID)
		if err := h.instances.Rows.MarkRewound(ctx, x.Instance); err != nil {
			return err
		}
		h.log.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	h.sender.release(ctx, armed)
	return nil
}
