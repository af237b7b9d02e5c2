package azurestorage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Rewinder = (*TaskHub)(nil)

// maxRewindAttempts is how often a rewind is planned because somebody else
// changed what the plan before was made from, or because it is not known how
// far that got.
const maxRewindAttempts = 3

// Rewind implements [provider.Rewinder]. The rows of the history are changed as
// .NET changes them, but those of one execution together, and those of the
// execution that the sentinel names: .NET takes the one with the longest
// history, which can be one that was replaced. The sentinel gets another ETag, though
// nothing of it changes: whoever is late to write that the execution has failed finds
// that the history has gone on
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// RewindHistoryAsync).
func (h *TaskHub) Rewind(ctx context.Context, id, reason string) error {
	if err := wire.CheckID(id); err != nil {
		return err
	}
	if err := h.ensureCreated(ctx); err != nil {
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
	row, err := h.readInstanceRow(ctx, id)
	if err != nil {
		return err
	}
	if row != nil && !provider.CanRewind(row.State.Status) {
		return provider.ErrInstanceChanged
	}
	rows := map[string][]*wire.HistoryRow{} // by instance
	sentinels := map[string]string{}        // their ETags
	plan, err := provider.PlanRewind(ctx, id, reason, time.Now(), func(ctx context.Context, id string) ([]history.Event, error) {
		current, etag, events, err := h.loadCurrent(ctx, id)
		rows[id], sentinels[id] = current, etag
		return events, err
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
		edits := rewindEdits(x, rows[id])
		if etag := sentinels[id]; etag != "" && len(edits) > 0 {
			touch := wire.Row{PartitionKey: wire.EscapeKey(id), RowKey: wire.SentinelRowKey}
			edits = append(edits, store.Operation{Method: http.MethodPatch, Entity: touch, IfMatch: etag})
		}
		if err := h.editHistory(ctx, edits); err != nil {
			return fmt.Errorf("change history of %q: %w", id, err)
		}
	}
	armed, err := h.arm(ctx, plan.Messages)
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		h.forget(x.Instance.InstanceID)
		if err := h.markRewound(ctx, x.Instance); err != nil {
			return err
		}
		h.log.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	h.release(ctx, armed)
	return nil
}

// loadCurrent returns the rows of an instance's current execution, without the
// sentinel, of which it returns the ETag, and their events.
func (h *TaskHub) loadCurrent(ctx context.Context, id string) (current []*wire.HistoryRow, sentinel string, events []history.Event, err error) {
	rows, err := h.historyRows(ctx, id, "")
	if err != nil {
		return nil, "", nil, err
	}
	current, stored := currentExecution(rows, "")
	if err := h.resolveColumns(ctx, current); err != nil {
		return nil, "", nil, err
	}
	events = make([]history.Event, len(current))
	for i, row := range current {
		if events[i], err = row.Event(); err != nil {
			return nil, "", nil, err
		}
	}
	return current, stored.etag, events, nil
}

// rewindEdits returns the changes to the rows of a rewound execution, those of
// its last rows last. Columns that are not named keep their values, so that
// nothing is lost of what this package does not know.
func rewindEdits(x provider.RewoundExecution, rows []*wire.HistoryRow) []store.Operation {
	edits := map[int]*wire.Row{}
	edit := func(at int) *wire.Row {
		if edits[at] == nil {
			e := &wire.Row{PartitionKey: wire.EscapeKey(x.Instance.InstanceID), RowKey: rows[at].RowKey}
			e.SetString("Reason", "Rewound: "+rows[at].EventType.String())
			edits[at] = e
		}
		return edits[at]
	}
	for _, at := range x.Mark {
		edit(at)
	}
	for _, at := range x.TakeOut {
		edit(at).SetString("EventType", history.TypeGenericEvent.String())
	}
	var ops []store.Operation
	for at, row := range rows {
		if e := edits[at]; e != nil {
			ops = append(ops, store.Operation{Method: http.MethodPatch, Entity: *e, IfMatch: row.ETag()})
		}
	}
	return ops
}

// editHistory makes the changes in as few transactions as can be. The end of
// the execution goes with the last of them, and so does the sentinel: until then
// it counts as ended, and rewinding it again does the rest.
func (h *TaskHub) editHistory(ctx context.Context, ops []store.Operation) error {
	for len(ops) > 0 {
		n := min(len(ops), store.MaxTransactionOperations)
		if len(ops)-n == 1 { // that would be the sentinel
			n--
		}
		again := func(err error) bool { return store.IsTransient(err) && store.WasNotApplied(err) }
		err := store.RetryIf(ctx, "update rows", again, func(ctx context.Context) error {
			_, err := h.historyTable.Transact(ctx, ops[:n])
			return err
		})
		if err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// markRewound makes the row of an instance say that it is pending, if it says
// that the execution has ended. If somebody changes the row at the same time,
// the instance goes on already, or was started anew: the row decides.
func (h *TaskHub) markRewound(ctx context.Context, instance history.OrchestrationInstance) error {
	row, err := h.readInstanceRow(ctx, instance.InstanceID)
	if err != nil || row == nil {
		return err
	}
	if row.IsReplacing(instance) {
		return provider.ErrInstanceChanged
	}
	if !row.State.Status.IsTerminal() || row.State.Instance.ExecutionID != instance.ExecutionID {
		return nil
	}
	e := wire.EncodeRewound(instance.InstanceID, time.Now())
	err = store.Retry(ctx, "write row of instance "+instance.InstanceID, func(ctx context.Context) error {
		_, err := h.instancesTable.Merge(ctx, e, row.ETag)
		return err
	})
	switch {
	case store.IsNotFound(err):
		return nil
	case store.IsConflict(err):
		return h.markRewound(ctx, instance)
	}
	return err
}
