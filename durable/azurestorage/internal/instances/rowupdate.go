package instances

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxRowAttempts is the maximum number of times that a row is read again after another client or
// worker has changed it.
const maxRowAttempts = 5

// RowUpdate is the update of an instance row after a checkpoint.
type RowUpdate struct {
	store *Store
	cp    *provider.Checkpoint
	row   *wire.InstanceRow // last known row; nil if it is unknown or missing
	// before is the execution ID in the last known row.
	before string
	// sentinel is the ETag of the history's sentinel after the checkpoint.
	sentinel string
	// events determine the new row, together with their history rows. rows is nil if the events are
	// not encoded yet.
	events []history.Event
	rows   []wire.Row
	// replaced lists blobs that will be deleted. The new row must not refer to them.
	replaced []string
}

// InstanceID returns the ID of the instance.
func (u *RowUpdate) InstanceID() string { return u.cp.Instance.InstanceID }

// MayFollowCommit reports whether a commit may complete before the row is written. That is so if the
// checkpoint starts the execution or does not change the status. Clients act on all other status
// changes. It is false if the checkpoint continues as new, because the row may refer to blobs of the
// previous generation, which are then deleted. It is also false for entities.
func (u *RowUpdate) MayFollowCommit() bool {
	status, changes := statusAfter(u.cp.NewEvents)
	return !u.cp.ContinuedAsNew && !history.IsEntity(u.InstanceID()) &&
		(!changes || status == history.Running && startsExecution(u.cp.NewEvents))
}

// TryDelay reports whether the row may be written later: the update would only change the status from
// Pending to Running. since is the time of the change. TryDelay caches the current row.
func (u *RowUpdate) TryDelay() (since time.Time, ok bool) {
	row := u.row
	if u.store.Tolerance < 0 || row == nil || row.ETag == "" || row.State.Status != history.Pending || row.State.Instance != u.cp.Instance ||
		!startsExecution(u.events) || customStatusText(u.customStatus()) != wire.JSONNull {
		return time.Time{}, false
	}
	if status, _ := statusAfter(u.events); status != history.Running {
		return time.Time{}, false
	}
	u.store.CachedRows.Put(u.InstanceID(), row)
	return lastUpdate(u.cp), true
}

// PreviousRow returns the last known row before the update.
func (u *RowUpdate) PreviousRow() *wire.InstanceRow { return u.row }

// Write writes the row and returns it. Then it calls Ended if the instance has ended, and deletes the
// blobs of the previous generation. The row is nil after an error, and also if the row belongs to a
// newer checkpoint and was not written. A later checkpoint of the same, outdated session must not use
// the ETag of a newer row.
func (u *RowUpdate) Write(ctx context.Context) (*wire.InstanceRow, error) {
	row, end, err := u.write(ctx)
	u.store.CachedRows.Put(u.InstanceID(), row)
	if err != nil {
		return nil, err
	}
	if EndsExecution(u.cp) {
		u.store.Ended(u.InstanceID(), end)
	}
	if row != nil {
		for _, name := range u.replaced {
			if err := u.store.Blobs.Remove(ctx, name); err != nil {
				u.store.Log.Warn("blob of an earlier generation could not be deleted", "instanceId", u.InstanceID(), "blob", name, "error", err)
			}
		}
	}
	return row, nil
}

// write writes the row. end is the result of endState.
func (u *RowUpdate) write(ctx context.Context) (_ *wire.InstanceRow, end *provider.InstanceState, err error) {
	id := u.InstanceID()
	if u.rows == nil {
		if u.rows, err = u.store.Histories.Encode(ctx, id, u.cp.Instance.ExecutionID, 0, u.events); err != nil {
			return nil, nil, err
		}
	}
	now := history.TruncateToTicks(time.Now())
	for n := 1; ; n++ {
		e := wire.EncodeInstanceCheckpoint(wire.InstanceCheckpoint{
			Instance: u.cp.Instance, TaskHub: u.store.TaskHub, Events: u.events, Rows: u.rows,
			BlobURL: u.store.Rows.BlobURL, CustomStatus: u.customStatus(), Now: now, IsNew: u.isNew(), Replaced: u.replaced,
		})
		etag, err := u.store.Rows.write(ctx, e, u.row)
		if err == nil {
			row := u.after(etag)
			return row, u.endState(row, &e, now), nil
		}
		if !store.IsConflict(err) && !store.IsNotFound(err) || n == maxRowAttempts {
			return nil, nil, err
		}
		if u.row, err = u.store.Rows.Read(ctx, id); err != nil {
			return nil, nil, err
		}
		over, err := u.isOver(ctx)
		if err != nil {
			return nil, nil, err
		}
		if over {
			u.store.Log.Warn("SplitBrainDetected", "instanceId", id, "executionId", u.cp.Instance.ExecutionID,
				"details", "the instance row belongs to a newer checkpoint and was not written")
			return nil, nil, nil
		}
	}
}

// customStatus returns the custom status after the checkpoint.
func (u *RowUpdate) customStatus() *string {
	switch {
	case !u.cp.KeepCustomStatus:
		return u.cp.CustomStatus
	case u.row == nil:
		return nil
	}
	return u.row.State.CustomStatus
}

// isRowCurrent reports whether a checkpoint needs no row update: it would only change the time of the
// last update, by less than tolerance. .NET writes the row at every checkpoint.
func isRowCurrent(row *wire.InstanceRow, cp *provider.Checkpoint, tolerance time.Duration) bool {
	if row == nil || tolerance < 0 || row.State.Instance.ExecutionID != cp.Instance.ExecutionID {
		return false
	}
	if _, changes := statusAfter(cp.NewEvents); changes || row.State.Status == history.Pending {
		return false
	}
	since := lastUpdate(cp).Sub(row.State.LastUpdatedAt)
	return since < tolerance && (cp.KeepCustomStatus || customStatusText(row.State.CustomStatus) == customStatusText(cp.CustomStatus))
}

// lastUpdate returns the time of a checkpoint.
func lastUpdate(cp *provider.Checkpoint) time.Time {
	return cp.NewEvents[len(cp.NewEvents)-1].Head().Timestamp
}

func customStatusText(v *string) string {
	if v == nil {
		return wire.JSONNull
	}
	return *v
}

// statusAfter returns the status after events. changes is false if no event changes the status.
func statusAfter(events []history.Event) (status history.RuntimeStatus, changes bool) {
	for _, ev := range events {
		if s, ok := history.StatusAfter(ev); ok {
			status, changes = s, true
		}
	}
	return status, changes
}

func startsExecution(events []history.Event) bool {
	return slices.ContainsFunc(events, func(ev history.Event) bool { return ev.Type() == history.TypeExecutionStarted })
}

// rowMissesStart reports whether an earlier checkpoint started the execution and its worker crashed
// before it wrote the row. The row is then written from the whole history.
func (u *RowUpdate) rowMissesStart() bool {
	row := u.row
	missed := row == nil || row.State.Status == history.Pending || row.State.Instance.ExecutionID != u.cp.Instance.ExecutionID
	return missed && !startsExecution(u.cp.NewEvents)
}

// isNew reports whether the update creates the row of an instance that no client started: the ID has
// no row, or the row of an instance that has ended.
func (u *RowUpdate) isNew() bool {
	row := u.row
	return row == nil || row.State.Status.IsTerminal() && row.State.Instance.ExecutionID != u.cp.Instance.ExecutionID
}

// endState returns the final state of an execution whose row was written. It returns nil if the execution
// has not ended. It also returns nil if parts of the state are unknown: the previous row is unknown, or
// the output or the tags are in a blob.
func (u *RowUpdate) endState(row *wire.InstanceRow, written *wire.Row, now time.Time) *provider.InstanceState {
	if u.row == nil || row.TagsBlob != "" || !EndsExecution(u.cp) {
		return nil
	}
	end := row.State
	end.Input, end.Output, end.CompletedAt = nil, nil, now
	if output, ok := written.LookUp("Output"); ok {
		if _, isBlob := wire.BlobNameFromURL(u.store.Blobs.URL, output); isBlob {
			return nil
		}
		end.Output = &output
	}
	return &end
}

// isOver reports whether the checkpoint must not write the row, which has changed and was read again.
// Either another worker has appended to the history, or a client has replaced the execution. A worker
// that has appended writes everything that the row lacks. The time of the last update proves nothing,
// because the workers' clocks differ. The history is read after the row: if it is appended to after
// that, the ETag of the row no longer matches.
func (u *RowUpdate) isOver(ctx context.Context) (bool, error) {
	sentinel, err := u.store.Histories.SentinelETag(ctx, u.cp.Instance.InstanceID)
	return sentinel != u.sentinel || isOfAnother(u.row, u.before, u.cp), err
}

// isOfAnother reports whether a client has replaced the checkpoint's execution and the previous one by
// the execution in row. That execution is pending, or it ended before it ran. Any other execution is
// an earlier generation whose worker wrote its row late. row may be nil.
func isOfAnother(row *wire.InstanceRow, before string, cp *provider.Checkpoint) bool {
	if row == nil {
		return false
	}
	switch row.State.Instance.ExecutionID {
	case "", before, cp.Instance.ExecutionID:
		return false
	}
	return row.State.Status == history.Pending || row.State.Status.IsTerminal()
}

// EndsExecution reports whether a checkpoint ends its execution.
func EndsExecution(cp *provider.Checkpoint) bool {
	for _, ev := range cp.NewEvents {
		if _, ok := ev.(*history.ExecutionCompleted); ok {
			return true
		}
	}
	return false
}

// after returns the row after a successful write.
func (u *RowUpdate) after(etag string) *wire.InstanceRow {
	cp, row := u.cp, &wire.InstanceRow{}
	if u.row != nil {
		*row = *u.row
	}
	row.ETag = etag
	row.State.Instance = cp.Instance
	row.State.CustomStatus, row.State.LastUpdatedAt = u.customStatus(), lastUpdate(cp)
	for _, ev := range u.events {
		if start, ok := ev.(*history.ExecutionStarted); ok {
			row.ApplyStart(start, u.isNew())
		}
	}
	if status, changes := statusAfter(u.events); changes {
		row.State.Status = status
	} else if row.State.Status == history.Pending || row.State.Status.IsTerminal() {
		row.State.Status = history.Running
	}
	return row
}
