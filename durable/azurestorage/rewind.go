package azurestorage

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxRewindAttempts limits how often a rewind is planned. Another process may change the data of a
// plan, and a request may have no clear result.
const maxRewindAttempts = 3

// Rewind implements [provider.Rewinder]. It changes the rows of the history as .NET does
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, RewindHistoryAsync), but in as few
// transactions per execution as possible. It rewinds the execution that the sentinel names; .NET
// selects the one with the longest history, which may have been replaced. The sentinel gets a new
// ETag although its columns stay the same. A worker that is late to write the failure of the
// execution thus detects the change.
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
	// A pending instance that has never ended was started again, and may be running.
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
		if x.Instance.InstanceID == id && row.BelongsToOtherPending(x.Instance) {
			return provider.ErrInstanceChanged
		}
	}
	for _, x := range plan.Executions {
		id := x.Instance.InstanceID
		if err := h.instances.Histories.Rewind(ctx, x, rows[id], sentinels[id]); err != nil {
			return fmt.Errorf("change history of %q: %w", id, err)
		}
	}
	var out []*outbound.Message
	for i, m := range plan.Messages {
		env := &wire.Envelope{Message: &plan.Messages[i], Sender: &history.OrchestrationInstance{}}
		out = append(out, &outbound.Message{To: h.partitionOf(m.Target.InstanceID), Env: env})
	}
	armed, err := h.sender.Arm(ctx, out)
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		h.instances.Evict(x.Instance.InstanceID)
		if err := h.instances.Rows.MarkRewound(ctx, x.Instance); err != nil {
			return err
		}
		h.Log.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	h.sender.Release(ctx, armed)
	return nil
}
