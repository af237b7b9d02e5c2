package azurestorage

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxRowAttempts is how often the instance row is read again because somebody
// else changed it.
const maxRowAttempts = 5

// writeInstanceRow makes the instance row say what the checkpoint changed. The
// history is written already, so losing a race here undoes nothing; what must
// not happen is that an older checkpoint, of a worker that was frozen in between,
// hides a newer one or a newer execution
// (AzureTableTrackingStore.cs, UpdateStateAsync, with UseInstanceTableEtag).
func (s *session) writeInstanceRow(ctx context.Context, cp *provider.Checkpoint, rows []entity) (err error) {
	defer func() {
		if err != nil {
			s.loaded.row = nil
		}
		s.hub.rows.put(s.slot.id, s.loaded.row)
	}()
	_, changes := statusAfter(cp.NewEvents)
	behind := !changes && s.loaded.rowIsBehind()
	if !behind && saysNothingNew(s.loaded.row, cp, s.hub.cfg.LastUpdatedTolerance) || s.isReplaced(cp) {
		return nil
	}
	before := ""
	if s.loaded.row != nil {
		before = s.loaded.row.State.Instance.ExecutionID
	}
	events := cp.NewEvents
	if behind || s.rowMissedStart(cp) {
		events = s.loaded.events
		if rows, err = s.hub.offloadedRows(ctx, s.slot.id, cp.Instance.ExecutionID, 0, events); err != nil {
			return err
		}
	}
	e := encodeInstanceCheckpoint(instanceCheckpoint{
		Instance: cp.Instance, TaskHub: s.hub.cfg.TaskHub, Events: events, Rows: rows,
		BlobURL: s.hub.blobURL, CustomStatus: cp.CustomStatus, Now: time.Now(),
	})
	for n := 1; ; n++ {
		etag, err := s.mergeRow(ctx, e)
		if err == nil {
			s.loaded.row = s.rowAfter(etag, cp, events)
			return nil
		}
		if !isConflict(err) && !isNotFound(err) || n == maxRowAttempts {
			return err
		}
		row, err := s.hub.readInstanceRow(ctx, s.slot.id)
		if err != nil {
			return err
		}
		if row != nil && isNewer(row, before, cp) {
			s.hub.log.Warn("SplitBrainDetected", "instanceId", s.slot.id, "executionId", cp.Instance.ExecutionID,
				"details", "the instance row is of a newer checkpoint and is left alone", "status", row.State.Status.String())
			s.loaded.row = row
			return nil
		}
		s.loaded.row = row
	}
}

// saysNothingNew reports whether a checkpoint need not be told to the instance
// row: it changes no more than the time of the last update, and not by as much as
// tolerance. .NET writes the row with every checkpoint.
func saysNothingNew(row *instanceRow, cp *provider.Checkpoint, tolerance time.Duration) bool {
	if row == nil || tolerance < 0 || row.State.Instance.ExecutionID != cp.Instance.ExecutionID {
		return false
	}
	if _, changes := statusAfter(cp.NewEvents); changes || row.State.Status == history.Pending {
		return false
	}
	since := lastUpdate(cp).Sub(row.State.LastUpdatedAt)
	return since < tolerance && customStatusText(row.State.CustomStatus) == customStatusText(cp.CustomStatus)
}

// lastUpdate returns the time that a checkpoint gives as its own.
func lastUpdate(cp *provider.Checkpoint) time.Time {
	return cp.NewEvents[len(cp.NewEvents)-1].Head().Timestamp
}

func customStatusText(v *string) string {
	if v == nil {
		return jsonNull
	}
	return *v
}

// statusAfter returns the status that the last of events to change it leads to;
// changes is false if none does.
func statusAfter(events []history.Event) (status history.RuntimeStatus, changes bool) {
	for _, ev := range events {
		if s, ok := statusAfterEvent(ev); ok {
			status, changes = s, true
		}
	}
	return status, changes
}

// statusAfterEvent returns the status that an event leads to; changes is false if it
// leads to none.
func statusAfterEvent(ev history.Event) (status history.RuntimeStatus, changes bool) {
	switch ev := ev.(type) {
	case *history.ExecutionStarted, *history.ExecutionResumed:
		return history.Running, true
	case *history.ExecutionSuspended:
		return history.Suspended, true
	case *history.ExecutionTerminated:
		return history.Terminated, true
	case *history.ExecutionCompleted:
		return ev.Status, true
	case *history.ContinueAsNew:
		return history.ContinuedAsNew, true
	}
	return 0, false
}

// rowIsBehind reports whether the row of an execution that goes on says another
// status than its history: the worker that suspended or resumed the instance died
// before it could tell the row. The row is then told of the whole history.
func (l *loadedInstance) rowIsBehind() bool {
	row := l.row
	return row != nil && row.State.Instance.ExecutionID == l.executionID && l.known.started && l.known.ended == nil &&
		!row.State.Status.IsTerminal() && row.State.Status != l.known.status
}

// isReplaced reports whether a client has put another execution in the place of
// the one that the checkpoint goes on with, and that has yet to start.
func (s *session) isReplaced(cp *provider.Checkpoint) bool {
	row := s.loaded.row
	return row != nil && row.State.Status == history.Pending && row.State.Instance.ExecutionID != cp.Instance.ExecutionID &&
		row.State.Instance.ExecutionID != "" && !startsExecution(cp)
}

func startsExecution(cp *provider.Checkpoint) bool {
	return slices.ContainsFunc(cp.NewEvents, func(ev history.Event) bool { return ev.Type() == history.TypeExecutionStarted })
}

// rowMissedStart reports whether the execution began with an earlier checkpoint
// that did not get to tell the row, because the worker died, and this one does
// not tell of it. The row is then told of the whole history.
func (s *session) rowMissedStart(cp *provider.Checkpoint) bool {
	row := s.loaded.row
	missed := row == nil || row.State.Status == history.Pending || row.State.Instance.ExecutionID != cp.Instance.ExecutionID
	return missed && !startsExecution(cp)
}

// mergeRow writes e to the instance row that the session knows of. When the
// fate of an attempt is unknown the next one may find its own work, which looks
// like somebody else's; merging again is harmless then.
func (s *session) mergeRow(ctx context.Context, e entity) (etag string, err error) {
	err = retry(ctx, "write row of instance "+s.slot.id, func(ctx context.Context) (err error) {
		if s.loaded.row == nil {
			etag, err = s.hub.instancesTable.insert(ctx, e)
		} else {
			etag, err = s.hub.instancesTable.merge(ctx, e, s.loaded.row.ETag)
		}
		return err
	})
	return etag, err
}

// isNewer reports whether a row that was found changed is of something newer
// than the checkpoint: an execution that is neither the checkpoint's nor the one
// before, or the end of an execution that the checkpoint goes on with.
func isNewer(row *instanceRow, before string, cp *provider.Checkpoint) bool {
	switch row.State.Instance.ExecutionID {
	case cp.Instance.ExecutionID:
		return row.State.Status.IsTerminal() && !endsExecution(cp)
	case before:
		return false
	}
	return true
}

func endsExecution(cp *provider.Checkpoint) bool {
	for _, ev := range cp.NewEvents {
		if _, ok := ev.(*history.ExecutionCompleted); ok {
			return true
		}
	}
	return false
}

// rowAfter returns what the session has to know of the row that it told of events.
func (s *session) rowAfter(etag string, cp *provider.Checkpoint, events []history.Event) *instanceRow {
	row := &instanceRow{}
	if s.loaded.row != nil {
		*row = *s.loaded.row
	}
	row.ETag = etag
	row.State.Instance = cp.Instance
	row.State.CustomStatus, row.State.LastUpdatedAt = cp.CustomStatus, lastUpdate(cp)
	if status, changes := statusAfter(events); changes {
		row.State.Status = status
	} else if row.State.Status == history.Pending || row.State.Status.IsTerminal() {
		row.State.Status = history.Running
	}
	return row
}
