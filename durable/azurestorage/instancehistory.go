package azurestorage

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/tracking"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// loadedInstance is what is stored of an instance: the history of one
// execution and the instance row.
type loadedInstance struct {
	storedHistory
	row *wire.InstanceRow // nil if there is none
	// rowOf is the execution that the row was of when it was last known: what has
	// become of it is not if it could not be written.
	rowOf string
	// unverified means that the history was not read but is remembered.
	unverified bool
	// replaced are the blobs of the generation before, which the row may name until the
	// checkpoint that continues as new has told it.
	replaced []string
}

// storedHistory is the history of one execution.
type storedHistory struct {
	executionID string
	events      []history.Event
	known       *knownEvents
	etag        string   // of the sentinel, empty if there is none
	blobs       []string // that hold columns of the rows
	bytes       int      // roughly, of the rows
	tracked     tracking.State
	current     currentGeneration
	batches     string // that counted, of an entity: see [entityBatches]
	run         string // the mark of this process's batches of an entity since it read this, empty if there was none
}

// currentGeneration is what the sentinel says of whose the history is.
type currentGeneration struct {
	executionID string
	first       string // the execution of which it is a later generation, empty if it is the first itself
}

// first returns the execution of which the stored one is a later generation,
// empty if it is the first itself or has no history.
func (s *storedHistory) first() string {
	if s.current.executionID != s.executionID {
		return ""
	}
	return s.current.first
}

// hasContinued reports whether an execution has had its history and continued as
// new since.
func (s *storedHistory) hasContinued(executionID string) bool {
	return executionID != "" && executionID == s.current.first && executionID != s.current.executionID
}

// unsent returns the rows of the tracking records that may not have been sent, and takes
// them for sent.
func (s *storedHistory) unsent(instanceID string) ([]wire.Row, error) {
	return s.tracked.Unsent(history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: s.executionID}, s.events)
}

// awaitsStart reports whether the ID was started again, and that start is under
// way: the row is of an execution that is pending, and not an earlier generation
// of the stored one, whose checkpoints did not get to tell the row.
func (l *loadedInstance) awaitsStart() bool {
	row := l.row
	return row != nil && row.State.Status == history.Pending &&
		row.State.Instance.ExecutionID != l.executionID && !l.hasContinued(row.State.Instance.ExecutionID)
}

// loadInstance reads what is stored of an instance. executionID is the
// execution that is wanted, empty for whichever is current. The row of an
// execution that goes on may be one that this process remembers.
func (h *TaskHub) loadInstance(ctx context.Context, instanceID, executionID string) (*loadedInstance, error) {
	loaded := &loadedInstance{row: h.rows.get(instanceID)}
	remembered := loaded.row != nil
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		loaded.storedHistory, err = h.loadHistory(groupCtx, instanceID, executionID)
		return err
	})
	if !remembered {
		group.Go(func() (err error) {
			loaded.row, err = h.readInstanceRow(groupCtx, instanceID)
			return err
		})
	}
	err := group.Wait()
	if store.IsBlobGone(err) {
		return h.leftOver(ctx, loaded, instanceID, executionID, err)
	}
	if err == nil && remembered && !loaded.goesOn() {
		loaded.row, err = h.readInstanceRow(ctx, instanceID)
	}
	if err != nil {
		return nil, fmt.Errorf("load instance %q: %w", instanceID, err)
	}
	return loaded, nil
}

// leftOver returns what loadInstance does where a blob is gone that the history names.
// If the row is not of that history's execution, the history is what a request that
// came late has written again of an instance that was purged. It does not count, and
// what replaces it must meet its sentinel. Else it is damaged: that is err.
func (h *TaskHub) leftOver(ctx context.Context, loaded *loadedInstance, instanceID, wanted string, cause error) (_ *loadedInstance, err error) {
	if loaded.row, err = h.readInstanceRow(ctx, instanceID); err != nil {
		return nil, err
	}
	if loaded.row != nil && !loaded.awaitsStart() {
		return nil, fmt.Errorf("load instance %q: %w", instanceID, cause)
	}
	h.log.Warn("history does not count: its instance was purged", "instanceId", instanceID, "executionId", loaded.executionID, "error", cause)
	loaded.storedHistory = storedHistory{executionID: wanted, known: newKnownEvents(), etag: loaded.etag}
	return loaded, nil
}

// goesOn reports whether the history is that of an execution which has started
// and not ended, and the row is of the same execution. Nothing but the row's
// ETag matters then.
func (l *loadedInstance) goesOn() bool {
	return l.known.started && l.known.ended == nil && l.row.State.Instance.ExecutionID == l.executionID
}

// loadHistory reads the history of the execution that is wanted, or of the
// current one
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync). If another execution than the wanted one is current,
// there are no events, but the sentinel's ETag is what the first checkpoint of
// the wanted one must meet.
func (h *TaskHub) loadHistory(ctx context.Context, instanceID, executionID string) (storedHistory, error) {
	rows, err := h.historyRows(ctx, instanceID, executionID)
	if err != nil {
		return storedHistory{}, err
	}
	return h.resolveHistory(ctx, rows, executionID)
}

// viewHistory is loadHistory of the current execution for somebody who changes
// nothing: what is appended while it is read may be missing.
func (h *TaskHub) viewHistory(ctx context.Context, instanceID string) (storedHistory, error) {
	rows, err := h.historyPages(instanceID, "").rest(ctx)
	if err != nil {
		return storedHistory{}, err
	}
	return h.resolveHistory(ctx, rows, "")
}

// resolveHistory makes a history of an instance's rows. With an error, it has no events.
func (h *TaskHub) resolveHistory(ctx context.Context, rows []*wire.HistoryRow, executionID string) (storedHistory, error) {
	current, stored := currentExecution(rows, executionID)
	if err := h.resolveColumns(ctx, current); err != nil {
		return stored, err
	}
	for _, row := range current {
		ev, err := row.Event()
		if err != nil {
			return storedHistory{}, err
		}
		stored.bytes += row.Size
		stored.events = append(stored.events, ev)
		stored.known.add(ev)
	}
	return stored, nil
}

// historyRows returns an instance's rows in the order of their keys: those of
// one execution and the sentinel, or all if executionID is empty. They are as
// they were at one instant.
//
// A page is. Of several, the later ones may be of after a checkpoint that the
// earlier ones do not have, and the sentinel, which is in the last, would pass
// the whole for what that checkpoint left. So several pages count only if the
// sentinel has not changed since before the first of them was read. .NET takes
// them as they come (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync).
func (h *TaskHub) historyRows(ctx context.Context, instanceID, executionID string) ([]*wire.HistoryRow, error) {
	p := h.historyPages(instanceID, executionID)
	if err := p.next(ctx); err != nil || p.last() {
		return p.rows, err
	}
	before, err := h.sentinelETag(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	for range maxHistoryReads {
		rows, err := h.historyPages(instanceID, executionID).rest(ctx)
		if err != nil {
			return nil, err
		}
		after := ""
		if len(rows) > 0 && rows[len(rows)-1].IsSentinel() {
			after = rows[len(rows)-1].ETag()
		}
		if after == before {
			return rows, nil
		}
		before = after
	}
	return nil, fmt.Errorf("the history of %q changed %d times while it was read", instanceID, maxHistoryReads)
}

// maxHistoryReads is how often a history is read that changes meanwhile. Nobody
// but the owner of the instance changes it, and those who had it before.
const maxHistoryReads = 5

// sentinelETag returns the ETag of an instance's sentinel as it is stored, empty if
// there is none.
func (h *TaskHub) sentinelETag(ctx context.Context, instanceID string) (string, error) {
	sentinel, err := h.historyRow(ctx, instanceID, wire.SentinelRowKey)
	if err != nil || sentinel == nil {
		return "", err
	}
	return sentinel.ETag(), nil
}

// historyRow returns a row of an instance's history, nil if there is none.
func (h *TaskHub) historyRow(ctx context.Context, instanceID, rowKey string) (*wire.HistoryRow, error) {
	var raw []byte
	err := store.Retry(ctx, "read history row "+rowKey, func(ctx context.Context) (err error) {
		raw, err = h.historyTable.Get(ctx, wire.EscapeKey(instanceID), rowKey)
		return err
	})
	switch {
	case store.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return wire.DecodeHistoryRow(raw)
}

// historyPages reads rows of a history.
type historyPages struct {
	hub     *TaskHub
	query   store.Query
	scanner wire.RowScanner
	rows    []*wire.HistoryRow // so far
	begun   bool
}

// historyPages returns what reads the rows that historyRows returns.
func (h *TaskHub) historyPages(instanceID, executionID string) *historyPages {
	filter := "PartitionKey eq '" + store.Doubled(wire.EscapeKey(instanceID)) + "'"
	if executionID != "" {
		filter += " and (RowKey eq '" + wire.SentinelRowKey + "' or ExecutionId eq '" + store.Doubled(executionID) + "')"
	}
	return &historyPages{hub: h, query: store.Query{Filter: filter}}
}

// last reports whether the last page has been read.
func (p *historyPages) last() bool { return p.begun && p.query.Continuation == "" }

// next reads one page.
func (p *historyPages) next(ctx context.Context) error {
	raws, continuation, err := p.hub.historyTable.Page(ctx, p.query)
	if err != nil {
		return err
	}
	p.begun, p.query.Continuation = true, continuation
	for _, raw := range raws {
		row, err := p.scanner.Row(raw)
		if err != nil {
			return err
		}
		row.Size = len(raw)
		p.rows = append(p.rows, row)
	}
	return nil
}

// rest reads all pages that have not been read and returns the rows of all.
func (p *historyPages) rest(ctx context.Context) ([]*wire.HistoryRow, error) {
	for !p.last() {
		if err := p.next(ctx); err != nil {
			return nil, err
		}
	}
	return p.rows, nil
}

// currentExecution picks the event rows of the wanted execution, or of the
// current one, out of an instance's rows in the order of their keys. Rows of an
// older and longer execution may follow; they are leftovers.
func currentExecution(rows []*wire.HistoryRow, wanted string) ([]*wire.HistoryRow, storedHistory) {
	stored := storedHistory{executionID: wanted, known: newKnownEvents()}
	var sentinel *wire.HistoryRow
	for _, row := range rows {
		if row.IsSentinel() {
			sentinel = row
		}
	}
	if sentinel != nil {
		stored.etag, stored.current.executionID = sentinel.ETag(), sentinel.ExecutionID
		if sentinel.Columns != nil {
			stored.tracked.Column, stored.current.first = sentinel.Columns.Tracking, sentinel.Columns.FirstExecutionID
			stored.batches = sentinel.Columns.EntityBatches
		}
	}
	if len(rows) == 0 || wanted != "" && (sentinel == nil || sentinel.ExecutionID != wanted) {
		return nil, stored
	}
	stored.executionID = rows[0].ExecutionID
	if sentinel != nil {
		stored.executionID = sentinel.ExecutionID
	}
	var current []*wire.HistoryRow
	for _, row := range rows {
		if row.ExecutionID != stored.executionID {
			break
		}
		if row.IsSentinel() {
			continue
		}
		for _, b := range row.Blobs() {
			stored.blobs = append(stored.blobs, b.Blob)
		}
		current = append(current, row)
	}
	return current, stored
}

// resolveColumns reads the columns that are in blobs.
func (h *TaskHub) resolveColumns(ctx context.Context, rows []*wire.HistoryRow) error {
	type column struct {
		row  *wire.HistoryRow
		from wire.ColumnBlob
		text []byte
	}
	var columns []*column
	for _, row := range rows {
		for _, b := range row.Blobs() {
			columns = append(columns, &column{row: row, from: b})
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobsAtOnce)
	for _, c := range columns {
		group.Go(func() (err error) {
			c.text, err = h.largeMessages.Read(ctx, c.from.Blob)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("read large columns of the history: %w", err)
	}
	for _, c := range columns {
		c.row.Resolve(c.from.Column, string(c.text))
		c.row.Size += len(c.text)
	}
	return nil
}

// blobsAtOnce bounds how many blobs of one instance are read at a time.
const blobsAtOnce = 8
