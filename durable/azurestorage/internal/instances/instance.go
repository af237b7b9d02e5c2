package instances

import (
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// hasOther reports whether the execution that was wanted has no history, and
// another may have one.
func (l *Instance) hasOther(wanted string) bool {
	return !l.Known.Started && (l.ETag != "" || l.Row != nil && !strings.EqualFold(l.Row.State.Instance.ExecutionID, wanted))
}

// Instance is what is stored of an instance: the history of one
// execution and the instance row.
type Instance struct {
	History
	Row *wire.InstanceRow // nil if there is none
	// rowOf is the execution that the row was of when it was last known. The row is not
	// known after a write that failed.
	rowOf string
	// Unverified means that the history is a remembered one and was not read.
	Unverified bool
	// Replaced are the blobs of the generation before, which the row may name until it is
	// written by the checkpoint that continues as new.
	Replaced []string
}

// NewInstance returns an instance with a row from memory, and no history.
func NewInstance(row *wire.InstanceRow) *Instance {
	return &Instance{
		History: History{ExecutionID: row.State.Instance.ExecutionID, Known: NewKnownEvents()},
		Row:     row, Unverified: true,
	}
}

// AwaitsStart reports whether the ID was started again and that execution has not begun:
// the row is of an execution that is pending, and not of an earlier generation of the
// stored one, whose worker died before it wrote the row.
func (l *Instance) AwaitsStart() bool {
	row := l.Row
	return row != nil && row.State.Status == history.Pending &&
		row.State.Instance.ExecutionID != l.ExecutionID && !l.HasContinued(row.State.Instance.ExecutionID)
}

// goesOn reports whether the history is that of an execution which has started
// and not ended, and the row is of the same execution. Nothing but the row's
// ETag matters then.
func (l *Instance) goesOn() bool {
	return l.Known.Started && l.Known.Ended == nil && l.Row.State.Instance.ExecutionID == l.ExecutionID
}

// RowIsBehind reports whether the row is missing, is of an earlier execution, or says
// another status than the history: the worker that wrote the history died before it
// wrote the row, or a client that rewound the instance did. The row is then written from
// the whole history.
func (l *Instance) RowIsBehind() bool {
	if !l.Known.Started || l.AwaitsStart() {
		return false
	}
	row := l.Row
	return row == nil || row.State.Instance.ExecutionID != l.ExecutionID || row.State.Status != l.Known.Status
}

// isReplaced reports whether a client has replaced the execution of the checkpoint by
// another one, which has not begun.
func (l *Instance) isReplaced(cp *provider.Checkpoint) bool {
	return l.AwaitsStart() && l.Row.State.Instance.ExecutionID != "" && !startsExecution(cp.NewEvents)
}

// Advance applies to l a checkpoint that has added rows to the history. etag is the
// sentinel's, and first the first execution of the checkpoint's generation, empty if it is
// the first itself.
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
			if name := rows[i].OffloadedTo(column); name != "" {
				l.Blobs = append(l.Blobs, name)
			}
		}
	}
	return nil
}
