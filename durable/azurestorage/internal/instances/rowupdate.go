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

// maxRowAttempts is how often the instance row is read again because another client or
// worker changed it.
const maxRowAttempts = 5

// RowUpdate is the writing of an instance's row after a checkpoint.
type RowUpdate struct {
	store *Store
	cp    *provider.Checkpoint
	row   *wire.InstanceRow // as it is known to be, nil if it is not
	// before is the execution that the row was of when it was last known.
	before string
	// sentinel is the ETag that the checkpoint has left the history's sentinel with.
	sentinel string
	// events are those that the row is written from, with their history rows. rows is
	// nil if they are not encoded yet.
	events []history.Event
	rows   []wire.Row
	// replaced are blobs that will be deleted, which the row must not name any more.
	replaced []string
}

// InstanceID returns whose row it is.
func (u *RowUpdate) InstanceID() string { return u.cp.Instance.InstanceID }

// MayBeLate reports whether the commit need not wait for the row: the checkpoint starts the
// execution or leaves the status as it is. Clients decide by other changes of the status,
// and a row of a generation before may name blobs that go.
func (u *RowUpdate) MayBeLate() bool {
	status, changes := statusAfter(u.cp.NewEvents)
	return !u.cp.ContinuedAsNew && !history.IsEntity(u.InstanceID()) &&
		(!changes || status == history.Running && startsExecution(u.cp.NewEvents))
}

// PutOff reports whether the row may be written some time later: it would say nothing but
// that an execution has begun whose row is pending, and since when that is so. The row is
// remembered as it is.
func (u *RowUpdate) PutOff() (since time.Time, ok bool) {
	row := u.row
	if u.store.Tolerance < 0 || row == nil || row.ETag == "" || row.State.Status != history.Pending || row.State.Instance != u.cp.Instance ||
		!startsExecution(u.events) || customStatusText(u.cp.CustomStatus) != wire.JSONNull {
		return time.Time{}, false
	}
	if status, _ := statusAfter(u.events); status != history.Running {
		return time.Time{}, false
	}
	u.store.CachedRows.Put(u.InstanceID(), row)
	return lastUpdate(u.cp), true
}

// Before returns the row as it is known to be before it is written.
func (u *RowUpdate) Before() *wire.InstanceRow { return u.row }

// Do writes the row and returns it, nil if there is an error. It is nil, too, if the row
// is left alone: a later checkpoint of the session, which is as late, must not use the
// ETag of what others wrote. Then Do announces the end of the instance, and deletes the
// blobs that the row names no more.
func (u *RowUpdate) Do(ctx context.Context) (*wire.InstanceRow, error) {
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

// write writes the row. end is as returned by ending.
func (u *RowUpdate) write(ctx context.Context) (_ *wire.InstanceRow, end *provider.InstanceState, err error) {
	id := u.InstanceID()
	if u.rows == nil {
		if u.rows, err = u.store.Histories.Encode(ctx, id, u.cp.Instance.ExecutionID, 0, u.events); err != nil {
			return nil, nil, err
		}
	}
	now := history.Ticks(time.Now())
	for n := 1; ; n++ {
		e := wire.EncodeInstanceCheckpoint(wire.InstanceCheckpoint{
			Instance: u.cp.Instance, TaskHub: u.store.TaskHub, Events: u.events, Rows: u.rows,
			BlobURL: u.store.Rows.BlobURL, CustomStatus: u.cp.CustomStatus, Now: now, IsNew: u.isNew(), Replaced: u.replaced,
		})
		etag, err := u.store.Rows.write(ctx, e, u.row)
		if err == nil {
			row := u.after(etag)
			return row, u.ending(row, &e, now), nil
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
				"details", "the instance row is for a newer checkpoint to write and is left alone")
			return nil, nil, nil
		}
	}
}

// saysNothingNew reports whether a checkpoint does not need the instance row to be
// written: it changes only the time of the last update, and by less than tolerance. .NET
// writes the row with every checkpoint.
func saysNothingNew(row *wire.InstanceRow, cp *provider.Checkpoint, tolerance time.Duration) bool {
	if row == nil || tolerance < 0 || row.State.Instance.ExecutionID != cp.Instance.ExecutionID {
		return false
	}
	if _, changes := statusAfter(cp.NewEvents); changes || row.State.Status == history.Pending {
		return false
	}
	since := lastUpdate(cp).Sub(row.State.LastUpdatedAt)
	return since < tolerance && customStatusText(row.State.CustomStatus) == customStatusText(cp.CustomStatus)
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

// statusAfter returns the status that the last of events to change it leads to;
// changes is false if none does.
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

// missedStart reports whether the execution began with an earlier checkpoint whose
// worker died before it wrote the row. The row is then written from the whole history.
func (u *RowUpdate) missedStart() bool {
	row := u.row
	missed := row == nil || row.State.Status == history.Pending || row.State.Instance.ExecutionID != u.cp.Instance.ExecutionID
	return missed && !startsExecution(u.cp.NewEvents)
}

// isNew reports whether the row will be that of a new instance that no client started:
// there is no row with its ID, or that of an instance that has ended.
func (u *RowUpdate) isNew() bool {
	row := u.row
	return row == nil || row.State.Status.IsTerminal() && row.State.Instance.ExecutionID != u.cp.Instance.ExecutionID
}

// ending returns how an execution ended whose row was written, nil if it did not, or if
// not all is known: the row was not known before, or the output is in a blob.
func (u *RowUpdate) ending(row *wire.InstanceRow, written *wire.Row, now time.Time) *provider.InstanceState {
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

// isOver reports whether the checkpoint must not write the row any more, which was read
// again because it had changed: the history has gone on, or a client has replaced the
// execution. A worker that went on with the history read the row as it was then, and
// writes what it lacks. The time of the last update proves nothing, since the clocks of
// workers differ. The history is read after the row: if it goes on only now, the row is
// written later, and the ETag does not match.
func (u *RowUpdate) isOver(ctx context.Context) (bool, error) {
	sentinel, err := u.store.Histories.SentinelETag(ctx, u.cp.Instance.InstanceID)
	return sentinel != u.sentinel || isOfAnother(u.row, u.before, u.cp), err
}

// isOfAnother reports whether a row, which may be nil, is of an execution by which a
// client has replaced the checkpoint's and the one before: it is pending, or it ended
// before it began. Else the row is of an earlier generation, whose worker was late to
// write it.
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

// EndsExecution reports whether the execution of a checkpoint ends with it.
func EndsExecution(cp *provider.Checkpoint) bool {
	for _, ev := range cp.NewEvents {
		if _, ok := ev.(*history.ExecutionCompleted); ok {
			return true
		}
	}
	return false
}

// after returns the row as it is known after it was written.
func (u *RowUpdate) after(etag string) *wire.InstanceRow {
	cp, row := u.cp, &wire.InstanceRow{}
	if u.row != nil {
		*row = *u.row
	}
	row.ETag = etag
	row.State.Instance = cp.Instance
	row.State.CustomStatus, row.State.LastUpdatedAt = cp.CustomStatus, lastUpdate(cp)
	for _, ev := range u.events {
		if start, ok := ev.(*history.ExecutionStarted); ok {
			row.Began(start, u.isNew())
		}
	}
	if status, changes := statusAfter(u.events); changes {
		row.State.Status = status
	} else if row.State.Status == history.Pending || row.State.Status.IsTerminal() {
		row.State.Status = history.Running
	}
	return row
}
