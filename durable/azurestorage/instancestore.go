package azurestorage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// readInstanceRow returns an instance's row without its input and output, nil
// if there is none.
func (h *TaskHub) readInstanceRow(ctx context.Context, instanceID string) (*wire.InstanceRow, error) {
	return h.fetchInstanceRow(ctx, instanceID, provider.Fetch{})
}

func (h *TaskHub) fetchInstanceRow(ctx context.Context, instanceID string, fetch provider.Fetch) (*wire.InstanceRow, error) {
	q := store.Query{
		Filter:  "PartitionKey eq '" + store.Doubled(wire.EscapeKey(instanceID)) + "'",
		Columns: wire.InstanceColumns(fetch),
		Top:     1,
	}
	for {
		rows, continuation, err := h.instancesTable.Page(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("read row of instance %q: %w", instanceID, err)
		}
		if len(rows) > 0 {
			return wire.DecodeInstanceRow(rows[0])
		}
		if continuation == "" {
			return nil, nil
		}
		q.Continuation = continuation
	}
}

// terminateUnstarted marks an instance terminated that has not started.
func (h *TaskHub) terminateUnstarted(ctx context.Context, instanceID string, stored *loadedInstance, event *history.ExecutionTerminated) error {
	return h.endUnstarted(ctx, instanceID, stored, wire.EncodeEndedBeforeStart(instanceID, history.Terminated, event.Reason, event.Timestamp, time.Now()))
}

// failUnstarted marks an instance failed whose start message nobody can read any
// more, because a blob is gone that the row and the message name: a request that came
// late has written the row again of an instance that was purged, or somebody deleted
// the blob. The row does not name it any more, so that it can be read.
func (h *TaskHub) failUnstarted(ctx context.Context, pending history.OrchestrationInstance, cause error) error {
	instanceID := pending.InstanceID
	stored, err := h.loadInstance(ctx, instanceID, pending.ExecutionID)
	switch {
	case err != nil || stored.known.started || stored.hasContinued(pending.ExecutionID):
		return err
	case stored.row == nil || stored.row.State.Instance != pending || stored.row.State.Status != history.Pending:
		return nil
	}
	h.log.Error("instance cannot start", "instanceId", instanceID, "executionId", pending.ExecutionID, "error", cause)
	now := history.Ticks(time.Now())
	e := wire.EncodeEndedBeforeStart(instanceID, history.Failed, new("it cannot start: "+cause.Error()), now, now)
	e.SetString("Input", wire.JSONNull)
	e.SetString("InputBlobName", "")
	e.SetString("TagsBlobName", "")
	return h.endUnstarted(ctx, instanceID, stored, e)
}

// endUnstarted merges e into the row of an instance that has not started. Its
// start message is discarded when it comes. Before that, the history gets a
// sentinel, or another one, so that nobody begins it any more: the first
// checkpoint of a worker that was given up for dead may be on its way. The row must
// be as it was read, since the ID may have been started anew if this one was given
// up for dead; .NET writes it in any case.
func (h *TaskHub) endUnstarted(ctx context.Context, instanceID string, stored *loadedInstance, e wire.Row) error {
	defer h.forget(instanceID)
	sentinel := wire.EncodeSentinel(instanceID, stored.row.State.Instance.ExecutionID, true, history.Ticks(time.Now()))
	err := store.Retry(ctx, "keep instance "+instanceID+" from starting", func(ctx context.Context) (err error) {
		if stored.etag == "" {
			_, err = h.historyTable.Insert(ctx, sentinel)
		} else {
			_, err = h.historyTable.Merge(ctx, sentinel, stored.etag)
		}
		return err
	})
	if err != nil { // of a conflict, too: somebody has begun it, or this is done already
		return err
	}
	if err := h.offloadInstance(ctx, &e); err != nil {
		return err
	}
	err = store.Retry(ctx, "end instance "+instanceID, func(ctx context.Context) error {
		_, err := h.instancesTable.Merge(ctx, e, stored.row.ETag)
		return err
	})
	switch {
	case err == nil:
		h.endings.tell(instanceID, nil)
	case store.IsNotFound(err):
		return nil // purged in the meantime
	}
	return err
}

// repairCurrent is repairEnded or repairRunning, whichever is right for the
// execution that is current.
func (h *TaskHub) repairCurrent(ctx context.Context, instanceID string) error {
	stored, err := h.loadInstance(ctx, instanceID, "")
	if err != nil {
		return err
	}
	if stored.known.ended != nil {
		return h.repairEnded(ctx, instanceID, stored)
	}
	return h.repairRunning(ctx, instanceID, stored)
}

// repairEnded makes the row of an instance say that it has ended, if a crash
// kept the last checkpoint from doing so
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateInstanceStatusForCompletedOrchestrationAsync). The row may still be that
// of an earlier generation, but not of an execution that is yet to start.
func (h *TaskHub) repairEnded(ctx context.Context, instanceID string, stored *loadedInstance) error {
	last := stored.known.ended
	if last == nil {
		return nil
	}
	if row := stored.row; row != nil {
		same := row.State.Instance.ExecutionID == stored.executionID
		if same && row.State.Status == last.Status || stored.awaitsStart() {
			return nil
		}
	}
	h.log.Info("instance row repaired: the instance has ended", "instanceId", instanceID, "executionId", stored.executionID, "status", last.Status.String())
	return h.repairRow(ctx, instanceID, stored, last.Timestamp)
}

// repairRunning makes the row of an instance say what its history does of an
// execution that goes on, if a crash kept the checkpoint from it that took a
// message which has come again. No other checkpoint may follow for long: one who
// resumes an instance, for instance, first looks whether its row says that it is
// suspended. The row may be missing, if the instance is a child, or still be that of
// an earlier execution, but not of one that is yet to start.
func (h *TaskHub) repairRunning(ctx context.Context, instanceID string, stored *loadedInstance) error {
	status, changes := statusAfter(stored.events)
	row := stored.row
	if !changes || stored.known.ended != nil || history.IsEntity(instanceID) {
		return nil
	}
	same := row != nil && row.State.Instance.ExecutionID == stored.executionID
	if same && (row.State.Status.IsTerminal() || row.State.Status == status) || stored.awaitsStart() {
		return nil
	}
	h.log.Info("instance row repaired", "instanceId", instanceID, "executionId", stored.executionID, "status", status.String())
	return h.repairRow(ctx, instanceID, stored, stored.events[len(stored.events)-1].Head().Timestamp)
}

// repairRow tells the row of an instance all that its history does, if neither has
// changed since they were read. If one has, the error says so, and what came again
// comes once more: the row that was read may be newer than the history that was, or
// what changed it may be the late write of somebody who knows less than both.
func (h *TaskHub) repairRow(ctx context.Context, instanceID string, stored *loadedInstance, at time.Time) error {
	rows, err := h.offloadedRows(ctx, instanceID, stored.executionID, 0, stored.events)
	if err != nil {
		return err
	}
	var customStatus *string
	if stored.row != nil {
		customStatus = stored.row.State.CustomStatus
	}
	e := wire.EncodeInstanceCheckpoint(wire.InstanceCheckpoint{
		Instance: history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: stored.executionID},
		TaskHub:  h.cfg.TaskHub, Events: stored.events, Rows: rows, BlobURL: h.blobURL, CustomStatus: customStatus, Now: at,
	})
	defer h.forget(instanceID)
	sentinel, err := h.sentinelETag(ctx, instanceID)
	if err == nil && sentinel != stored.etag {
		err = fmt.Errorf("history of %q has changed: %w", instanceID, provider.ErrSessionLost)
	}
	if err != nil {
		return err
	}
	return store.Retry(ctx, "repair row of instance "+instanceID, func(ctx context.Context) (err error) {
		if stored.row == nil {
			_, err = h.instancesTable.Insert(ctx, e)
		} else {
			_, err = h.instancesTable.Merge(ctx, e, stored.row.ETag)
		}
		return err
	})
}

func (h *TaskHub) blobURL(name string) string { return wire.BlobURL(h.largeMessages.URL, name) }

// offloadInstance puts the large columns of an instance's row into blobs.
func (h *TaskHub) offloadInstance(ctx context.Context, row *wire.Row) error {
	for _, column := range row.LargeColumns() {
		name := row.ColumnBlobName(column, rand.Uint32())
		if err := h.largeMessages.Write(ctx, name, []byte(row.Text(column))); err != nil {
			return err
		}
		if column == "Input" || column == "Output" {
			row.OffloadAsURL(column, h.blobURL(name))
		} else {
			row.Offload(column, name)
		}
	}
	return nil
}

// offloadedRows returns the history rows of events, the first of which has the
// given ordinal, with their large columns in blobs.
func (h *TaskHub) offloadedRows(ctx context.Context, instanceID, executionID string, ordinal int, events []history.Event) ([]wire.Row, error) {
	rows := make([]wire.Row, len(events))
	for i, ev := range events {
		rows[i] = wire.EncodeHistoryRow(ev, instanceID, ordinal+i, executionID)
		for _, column := range rows[i].LargeColumns() {
			name := rows[i].ColumnBlobName(column, rand.Uint32())
			if err := h.largeMessages.Write(ctx, name, []byte(rows[i].Text(column))); err != nil {
				return nil, fmt.Errorf("write column %s of %s: %w", column, ev.Type(), err)
			}
			rows[i].Offload(column, name)
		}
	}
	return rows, nil
}
