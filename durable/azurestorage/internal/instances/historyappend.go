package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// historyBatch is the rows of one transaction.
type historyBatch struct {
	rows     []wire.Row
	complete bool // the last batch of its checkpoint
}

// splitHistory divides rows into transactions within the service's limits. It does not separate the
// TaskScheduled of a durable step from the next row, which records the step's end or start: without
// that row, the step would be an activity that no queue has.
func splitHistory(rows []wire.Row) []historyBatch {
	var batches []historyBatch
	for first := 0; first < len(rows); {
		end, size := first, 0
		for end < len(rows) && end-first < wire.MaxHistoryBatchRows && size <= wire.MaxHistoryBatchBytes-maxRowEstimate {
			size += max(rows[end].SizeEstimate(), len(rows[end].JSON())+store.OperationOverhead)
			end++
		}
		if end-first > 1 && end < len(rows) && isOfStep(&rows[end-1], &rows[end]) {
			end--
		}
		batches = append(batches, historyBatch{rows: rows[first:end], complete: end == len(rows)})
		first = end
	}
	return batches
}

// isOfStep reports whether row is a TaskScheduled and next may belong to the same durable step.
func isOfStep(row, next *wire.Row) bool {
	if row.Text("EventType") != history.TypeTaskScheduled.String() {
		return false
	}
	switch next.Text("EventType") {
	case history.TypeTaskCompleted.String(), history.TypeTaskFailed.String(), history.TypeGenericEvent.String():
		return true
	}
	return false
}

// maxRowEstimate is the maximum size that a row adds to a transaction: nine columns of the largest
// size that is stored inline. Reserving this size keeps transactions below the service's limit.
const maxRowEstimate = 1024 + len(wire.LargeTextColumns)*2*wire.MaxColumnUnits

// historyWrite is one transaction on a history.
type historyWrite struct {
	histories *Histories
	instance  history.OrchestrationInstance
	rows      []wire.Row
	complete  bool
	at        time.Time
	notes     map[string]string // additional columns of the sentinel
}

// An outcome is the result of a write without a response.
type outcome int

const (
	notWritten outcome = iota
	written            // and no other worker has written since
	followed           // written, and another worker has written since
)

// do writes the rows and retries until the result is clear. After every failed attempt without a clear
// result it reads the sentinel. A conflict is not a clear result either, not even of the first
// attempt: the network may deliver a request twice, and the response may be the response to the second
// copy.
//
// If another worker has written after a successful attempt, do succeeds but returns an outdated ETag.
// The next append with this ETag fails.
//
// The first write of a history has no ETag to match. Other workers may have owned, completed and
// purged the instance since the first attempt. After FirstWriteTimeout, do therefore does not retry
// such a write.
func (w *historyWrite) do(ctx context.Context, etag string) (newETag string, err error) {
	begun := time.Now()
	for retries := store.NewRetries(); ; {
		err := store.Once(ctx, func(ctx context.Context) (err error) {
			newETag, err = w.attempt(ctx, etag)
			return err
		})
		switch {
		case err == nil:
			return newETag, nil
		case store.WasNotApplied(err) && !store.IsConflict(err) && !store.IsTransient(err):
			return "", fmt.Errorf("append to history: %w", err)
		}
		became, newETag, lookErr := w.checkOutcome(ctx, etag)
		switch {
		case lookErr == nil && became == written:
			return newETag, nil
		case lookErr == nil && became == followed:
			return etag, nil
		case lookErr == nil && (newETag != etag || etag == "" && store.IsConflict(err)):
			return "", w.lost(err)
		case errors.Is(lookErr, provider.ErrSessionLost):
			return "", w.lost(errors.Join(err, lookErr))
		case ctx.Err() != nil || etag == "" && time.Since(begun) > w.histories.FirstWriteTimeout:
			return "", fmt.Errorf("append to history: %d attempts: %w", retries.FailedAttempts()+1, errors.Join(err, lookErr))
		case lookErr != nil && !store.IsTransient(lookErr):
			return "", fmt.Errorf("append to history: %w", errors.Join(err, lookErr))
		}
		if !retries.AwaitRetry(ctx, "append to history of "+w.instance.InstanceID, err) {
			return "", fmt.Errorf("append to history: %d attempts: %w", retries.FailedAttempts(), errors.Join(context.Cause(ctx), err, lookErr))
		}
	}
}

func (w *historyWrite) lost(err error) error {
	return fmt.Errorf("append to history of %q: %w: %w", w.instance.InstanceID, provider.ErrSessionLost, err)
}

func (w *historyWrite) attempt(ctx context.Context, etag string) (string, error) {
	ops := make([]store.Operation, 0, len(w.rows)+1)
	for _, row := range w.rows {
		ops = append(ops, store.Operation{Method: http.MethodPut, Entity: row})
	}
	sentinel := store.Operation{
		Method: http.MethodPost,
		Entity: wire.EncodeSentinel(w.instance.InstanceID, w.instance.ExecutionID, w.complete, w.at),
	}
	for _, column := range slices.Sorted(maps.Keys(w.notes)) {
		sentinel.Entity.SetString(column, w.notes[column])
	}
	if etag != "" {
		sentinel.Method, sentinel.IfMatch = http.MethodPatch, etag
	}
	etags, err := w.histories.HistoryTable.Transact(ctx, append(ops, sentinel))
	if err != nil {
		return "", err
	}
	newETag := etags[len(etags)-1]
	if newETag == "" {
		return "", errors.New("the response has no ETag for the sentinel")
	}
	return newETag, nil
}

// checkOutcome reads the sentinel and finds out whether this write succeeded. The last row identifies
// the write, because its time is the end of this worker's episode. If the history belongs to another
// execution, which may have followed this one, the error is an [OtherExecutionError].
func (w *historyWrite) checkOutcome(ctx context.Context, before string) (became outcome, etag string, err error) {
	sentinel, err := w.histories.Row(ctx, w.instance.InstanceID, wire.SentinelRowKey)
	switch {
	case err != nil || sentinel == nil:
		return notWritten, "", err
	case sentinel.ETag() == before:
		return notWritten, before, nil
	case sentinel.ExecutionID != w.instance.ExecutionID:
		return notWritten, "", &OtherExecutionError{sentinel.ExecutionID}
	}
	ours := &w.rows[len(w.rows)-1]
	stored, err := w.histories.Row(ctx, w.instance.InstanceID, ours.RowKey)
	if err != nil || stored == nil {
		return notWritten, sentinel.ETag(), err
	}
	wrote, err := wire.DecodeHistoryRow(ours.JSON())
	switch {
	case err != nil:
		return notWritten, "", err
	case stored.ExecutionID != wrote.ExecutionID || !stored.SameEvent(wrote):
		return notWritten, sentinel.ETag(), nil
	case !w.left(sentinel):
		return followed, "", nil
	}
	return written, sentinel.ETag(), nil
}

// left reports whether the sentinel is still as this write left it.
func (w *historyWrite) left(sentinel *wire.HistoryRow) bool {
	c := sentinel.Columns
	return c.IsCheckpointComplete == w.complete && (!w.complete || c.CheckpointCompletedTimestamp.Equal(w.at))
}

// OtherExecutionError reports that a history belongs to another execution.
type OtherExecutionError struct{ ExecutionID string }

func (e *OtherExecutionError) Error() string {
	return fmt.Sprintf("the history is of execution %q", e.ExecutionID)
}

// Is makes an OtherExecutionError match [provider.ErrSessionLost].
func (e *OtherExecutionError) Is(target error) bool { return target == provider.ErrSessionLost }

// asStored returns ev as a read of its row would return it, and the size of the row in bytes. The row
// may refer to blobs.
func asStored(ev history.Event, row *wire.Row) (stored history.Event, size int, err error) {
	raw := row.JSON()
	decoded, err := wire.DecodeHistoryRow(raw)
	if err != nil {
		return nil, 0, fmt.Errorf("decode the written row: %w", err)
	}
	size = len(raw)
	if blobs := decoded.Blobs(); len(blobs) > 0 {
		whole := wire.EncodeHistoryRow(ev, "", 0, "")
		for _, b := range blobs {
			text := whole.Text(b.Column)
			decoded.Resolve(b.Column, text)
			size += len(text)
		}
	}
	stored, err = decoded.Event()
	return stored, size, err
}
