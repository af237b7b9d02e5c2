package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Histories reads and writes the histories of instances.
type Histories struct{ *Config }

// Append writes rows to an instance's history, in as many transactions
// as they need, each of which must find the sentinel as the one before left it
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UploadHistoryBatch). It returns the sentinel's new ETag, and how many rows are
// known to be written. [provider.ErrSessionLost] means that another
// writer came in between. notes are more columns of the sentinel.
func (h *Histories) Append(ctx context.Context, instance history.OrchestrationInstance, rows []wire.Row, etag string, notes map[string]string) (newETag string, written int, err error) {
	for _, batch := range splitHistory(rows) {
		last := batch.complete
		w := historyWrite{histories: h, instance: instance, rows: batch.rows, complete: last, at: history.Ticks(time.Now()), notes: notes}
		if etag, err = w.do(ctx, etag); err != nil {
			return "", written, err
		}
		written += len(batch.rows)
		h.Log.Debug("AppendedInstanceHistory", "instanceId", instance.InstanceID, "executionId", instance.ExecutionID, "rows", len(batch.rows), "complete", last)
	}
	return etag, written, nil
}

// Load reads the history of the execution that is wanted, or of the
// current one
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync). If another execution than the wanted one is current,
// there are no events, but the sentinel's ETag is the one that the first checkpoint
// of the wanted execution must match.
func (h *Histories) Load(ctx context.Context, instanceID, executionID string) (History, error) {
	rows, err := h.rowsOf(ctx, instanceID, executionID)
	if err != nil {
		return History{}, err
	}
	stored, _, err := h.resolve(ctx, rows, executionID)
	return stored, err
}

// View is Load of the current execution for a caller that changes nothing: what is
// appended while it is read may be missing.
func (h *Histories) View(ctx context.Context, instanceID string) (History, error) {
	rows, err := h.pages(instanceID, "").rest(ctx)
	if err != nil {
		return History{}, err
	}
	stored, _, err := h.resolve(ctx, rows, "")
	return stored, err
}

// Current is Load of the current execution, with its rows, without the sentinel.
func (h *Histories) Current(ctx context.Context, instanceID string) (History, []*wire.HistoryRow, error) {
	rows, err := h.rowsOf(ctx, instanceID, "")
	if err != nil {
		return History{}, nil, err
	}
	return h.resolve(ctx, rows, "")
}

// resolve makes a history of an instance's rows, and returns those that it is made of.
// With an error, it has no events.
func (h *Histories) resolve(ctx context.Context, rows []*wire.HistoryRow, executionID string) (History, []*wire.HistoryRow, error) {
	current, stored := currentExecution(rows, executionID)
	if err := h.resolveColumns(ctx, current); err != nil {
		return stored, nil, err
	}
	for _, row := range current {
		ev, err := row.Event()
		if err != nil {
			return History{}, nil, err
		}
		stored.bytes += row.Size
		stored.Events = append(stored.Events, ev)
		stored.Known.Add(ev)
	}
	return stored, current, nil
}

// rowsOf returns an instance's rows in the order of their keys: those of
// one execution and the sentinel, or all if executionID is empty. They are as
// they were at one instant.
//
// A page is. Of several, the later ones may be of after a checkpoint that the
// earlier ones do not have, and the sentinel, which is in the last, would pass
// the whole for what that checkpoint left. So several pages count only if the
// sentinel has not changed since before the first of them was read. .NET takes
// them as they come (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync).
func (h *Histories) rowsOf(ctx context.Context, instanceID, executionID string) ([]*wire.HistoryRow, error) {
	p := h.pages(instanceID, executionID)
	if err := p.next(ctx); err != nil || p.last() {
		return p.rows, err
	}
	before, err := h.SentinelETag(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	for range maxHistoryReads {
		rows, err := h.pages(instanceID, executionID).rest(ctx)
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

// maxHistoryReads is how often a history is read that changes meanwhile. Only the owner
// of the instance changes it, and workers that owned it before.
const maxHistoryReads = 5

// SentinelETag returns the ETag of an instance's sentinel as it is stored, empty if
// there is none.
func (h *Histories) SentinelETag(ctx context.Context, instanceID string) (string, error) {
	sentinel, err := h.Row(ctx, instanceID, wire.SentinelRowKey)
	if err != nil || sentinel == nil {
		return "", err
	}
	return sentinel.ETag(), nil
}

// Row returns a row of an instance's history, nil if there is none.
func (h *Histories) Row(ctx context.Context, instanceID, rowKey string) (*wire.HistoryRow, error) {
	var raw []byte
	err := store.Retry(ctx, "read history row "+rowKey, func(ctx context.Context) (err error) {
		raw, err = h.HistoryTable.Get(ctx, wire.EscapeKey(instanceID), rowKey)
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

// pages returns what reads the rows that rowsOf returns.
func (h *Histories) pages(instanceID, executionID string) *historyPages {
	filter := "PartitionKey eq '" + store.Doubled(wire.EscapeKey(instanceID)) + "'"
	if executionID != "" {
		filter += " and (RowKey eq '" + wire.SentinelRowKey + "' or ExecutionId eq '" + store.Doubled(executionID) + "')"
	}
	return &historyPages{histories: h, query: store.Query{Filter: filter}}
}

// resolveColumns reads the columns that are in blobs.
func (h *Histories) resolveColumns(ctx context.Context, rows []*wire.HistoryRow) error {
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
	err := store.Each(ctx, blobsAtOnce, columns, func(ctx context.Context, _ int, c *column) (err error) {
		c.text, err = h.Blobs.Read(ctx, c.from.Blob)
		return err
	})
	if err != nil {
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

// Encode returns the history rows of events, the first of which has the
// given ordinal, with their large columns in blobs.
func (h *Histories) Encode(ctx context.Context, instanceID, executionID string, ordinal int, events []history.Event) ([]wire.Row, error) {
	rows := make([]wire.Row, len(events))
	for i, ev := range events {
		rows[i] = wire.EncodeHistoryRow(ev, instanceID, ordinal+i, executionID)
		for _, column := range rows[i].LargeColumns() {
			name := rows[i].ColumnBlobName(column, rand.Uint32())
			if err := h.Blobs.Write(ctx, name, []byte(rows[i].Text(column))); err != nil {
				return nil, fmt.Errorf("write column %s of %s: %w", column, ev.Type(), err)
			}
			rows[i].Offload(column, name)
		}
	}
	return rows, nil
}

// purgesAtOnce bounds how many requests one purge makes at a time.
const purgesAtOnce = 10

// RowVersion is a row as it was at some time.
type RowVersion struct{ RowKey, etag string }

// Versions returns all rows that the history table has of an instance, of older
// executions too, in the order of their keys.
func (h *Histories) Versions(ctx context.Context, id string) ([]RowVersion, error) {
	var versions []RowVersion
	q := store.Query{Filter: "PartitionKey eq '" + store.Doubled(wire.EscapeKey(id)) + "'", Columns: []string{"PartitionKey", "RowKey"}}
	err := h.HistoryTable.All(ctx, q, func(raw []byte) error {
		var row struct {
			RowKey string
			ETag   string `json:"odata.etag"`
		}
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode history row: %w", err)
		}
		versions = append(versions, RowVersion{row.RowKey, row.ETag})
		return nil
	})
	return versions, err
}

// Remove deletes rows of an instance's history, as many at a time as a
// transaction takes. The last of them, with the sentinel, go first: if the history has
// gone on, or was rewound, all of it stays.
func (h *Histories) Remove(ctx context.Context, id string, versions []RowVersion) error {
	var batches [][]store.Operation
	for chunk := range slices.Chunk(versions, store.MaxTransactionOperations) {
		ops := make([]store.Operation, len(chunk))
		for i, v := range chunk {
			ops[i] = store.Operation{Method: http.MethodDelete, Entity: wire.Row{PartitionKey: wire.EscapeKey(id), RowKey: v.RowKey}, IfMatch: v.etag}
		}
		batches = append(batches, ops)
	}
	if len(batches) == 0 {
		return nil
	}
	last := len(batches) - 1
	if err := h.HistoryTable.RemoveAll(ctx, batches[last]); err != nil {
		return err
	}
	return store.Each(ctx, purgesAtOnce, batches[:last], func(ctx context.Context, _ int, ops []store.Operation) error {
		return h.HistoryTable.RemoveAll(ctx, ops)
	})
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

// Rewind changes the rows of a rewound execution, and the ETag of its sentinel, which has
// been the given one.
func (h *Histories) Rewind(ctx context.Context, x provider.RewoundExecution, rows []*wire.HistoryRow, sentinel string) error {
	edits := rewindEdits(x, rows)
	if sentinel != "" && len(edits) > 0 {
		touch := wire.Row{PartitionKey: wire.EscapeKey(x.Instance.InstanceID), RowKey: wire.SentinelRowKey}
		edits = append(edits, store.Operation{Method: http.MethodPatch, Entity: touch, IfMatch: sentinel})
	}
	return h.edit(ctx, edits)
}

// edit makes the changes in as few transactions as can be. The end of
// the execution goes with the last of them, and so does the sentinel: until then
// it counts as ended, and rewinding it again does the rest.
func (h *Histories) edit(ctx context.Context, ops []store.Operation) error {
	for len(ops) > 0 {
		n := min(len(ops), store.MaxTransactionOperations)
		if len(ops)-n == 1 { // that would be the sentinel
			n--
		}
		again := func(err error) bool { return store.IsTransient(err) && store.WasNotApplied(err) }
		err := store.RetryIf(ctx, "update rows", again, func(ctx context.Context) error {
			_, err := h.HistoryTable.Transact(ctx, ops[:n])
			return err
		})
		if err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// historyPages reads rows of a history.
type historyPages struct {
	histories *Histories
	query     store.Query
	scanner   wire.RowScanner
	rows      []*wire.HistoryRow // so far
	begun     bool
}

// last reports whether the last page has been read.
func (p *historyPages) last() bool { return p.begun && p.query.Continuation == "" }

// next reads one page.
func (p *historyPages) next(ctx context.Context) error {
	raws, continuation, err := p.histories.HistoryTable.Page(ctx, p.query)
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
