package instances

import (
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// mayHaveOtherExecution reports whether the wanted execution has no history, and another execution of
// the instance may have one.
func (l *Instance) mayHaveOtherExecution(wanted string) bool {
	return !l.Known.Started && (l.ETag != "" || l.Row != nil && !strings.EqualFold(l.Row.State.Instance.ExecutionID, wanted))
}

// Instance is the stored state of an instance: the history of one execution, and the instance row.
type Instance struct {
	History
	Row *wire.InstanceRow // nil if the instance has no row
	// cachedRow is the row that was in the cache when the instance was loaded, or nil.
	cachedRow *wire.InstanceRow
	// rowOf is the execution ID in the last known row. After a failed write the row itself is unknown.
	rowOf string
	// Unverified means that the history was not read from storage.
	Unverified bool
	// Replaced lists the blobs of the previous generation. The row may refer to them until the
	// checkpoint that continues as new has written it.
	Replaced []string
}

// NewInstance returns an instance with a cached row and without a history.
func NewInstance(row *wire.InstanceRow) *Instance {
	return &Instance{
		History: History{ExecutionID: row.State.Instance.ExecutionID, Known: NewKnownEvents()},
		Row:     row, Unverified: true,
	}
}

// AwaitsStart reports whether the ID was started again and the new execution has not run yet. The row
// then belongs to a pending execution. A pending row of an earlier generation does not count: its
// worker crashed before it updated the row.
func (l *Instance) AwaitsStart() bool {
	row := l.Row
	return row != nil && row.State.Status == history.Pending &&
		row.State.Instance.ExecutionID != l.ExecutionID && !l.HasContinued(row.State.Instance.ExecutionID)
}

// isRunning reports whether the execution is running and the row belongs to it. In this case a cached
// row is sufficient, because a wrong ETag is detected when the row is written.
func (l *Instance) isRunning() bool {
	return l.Known.Started && l.Known.Ended == nil && l.Row.State.Instance.ExecutionID == l.ExecutionID
}

// RowIsBehind reports whether the row is missing, belongs to an earlier execution, or has another
// status than the history. The worker that wrote the history, or the client that rewound the instance,
// crashed before it wrote the row. The next update must write the row from the whole history.
func (l *Instance) RowIsBehind() bool {
	if !l.Known.Started || l.AwaitsStart() {
		return false
	}
	row := l.Row
	return row == nil || row.State.Instance.ExecutionID != l.ExecutionID || row.State.Status != l.Known.Status
}

// isReplaced reports whether a client has replaced the checkpoint's execution by a new one that has
// not run yet.
func (l *Instance) isReplaced(cp *provider.Checkpoint) bool {
	return l.AwaitsStart() && l.Row.State.Instance.ExecutionID != "" && !startsExecution(cp.NewEvents)
}

// Advance applies a checkpoint to l after its rows were appended to the history. etag is the new ETag
// of the sentinel. first is the first execution of the checkpoint's generations, empty if the
// checkpoint's execution is itself the first.
func (l *Instance) Advance(cp *provider.Checkpoint, etag, first string, rows []wire.Row) error {
	if cp.ContinuedAsNew {
		l.History, l.Replaced = History{Known: NewKnownEvents(), Batches: l.Batches, Run: l.Run}, l.Blobs
	}
	l.Current = Generation{cp.Instance.ExecutionID, first}
	l.ExecutionID, l.ETag, l.Unverified = cp.Instance.ExecutionID, etag, false
	for i, ev := range cp.NewEvents {
		l.Known.Add(ev)
		stored, size, err := asStored(ev, &rows[i])
		if err != nil {
			return err
		}
		l.Events, l.bytes = append(l.Events, stored), l.bytes+size
		for _, column := range wire.LargeTextColumns {
			if name := rows[i].BlobOf(column); name != "" {
				l.Blobs = append(l.Blobs, name)
			}
		}
	}
	return nil
}

// DueSince returns the time from which a pending instance may start.
func DueSince(s *provider.InstanceState) time.Time {
	if s.ScheduledAt.After(s.LastUpdatedAt) {
		return s.ScheduledAt
	}
	return s.LastUpdatedAt
}
