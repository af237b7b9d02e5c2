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

// Append appends rows to an instance's history. It uses as many transactions as necessary; each
// transaction must find the sentinel with the ETag of the previous one
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, UploadHistoryBatch). It returns the
// new ETag of the sentinel, and the number of rows that were certainly written. The error is
// [provider.ErrSessionLost] if another worker has written to the history. notes are additional columns
// of the sentinel.
func (h *Histories) Append(ctx context.Context, instance history.OrchestrationInstance, rows []wire.Row, etag string, notes map[string]string) (newETag string, written int, err error) {
	for _, batch := range splitHistory(rows) {
		last := batch.complete
		w := historyWrite{histories: h, instance: instance, rows: batch.rows, complete: last, at: history.TruncateToTicks(time.Now()), notes: notes}
		if etag, err = w.do(ctx, etag); err != nil {
			return "", written, err
		}
		written += len(batch.rows)
		h.Log.Debug("AppendedInstanceHistory", "instanceId", instance.InstanceID, "executionId", instance.ExecutionID, "rows", len(batch.rows), "complete", last)
	}
	return etag, written, nil
}

// Load reads the history of an execution, or of the current execution if executionID is empty
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, GetHistoryEventsAsync). If another
// execution is current, the result has no events. It then has the ETag of the sentinel, which the
// first checkpoint of the wanted execution must match.
func (h *Histories) Load(ctx context.Context, instanceID, executionID string) (History, error) {
	rows, err := h.rowsOf(ctx, instanceID, executionID)
	if err != nil {
		return History{}, err
	}
	stored, _, err := h.resolve(ctx, rows, executionID)
	return stored, err
}

// View is [Histories.Load] of the current execution for read-only callers. It may miss events that are
// appended during the read. If the instance continues as new during the read, the rows can belong to
// two executions, and blobs of the rows can be deleted. View then reads the history again.
func (h *Histories) View(ctx context.Context, instanceID string) (History, error) {
	seen := ""
	for range maxHistoryReads {
		rows, err := h.pages(instanceID, "").rest(ctx)
		if err != nil {
			return History{}, err
		}
		stored, current, err := h.resolve(ctx, rows, "")
		isMixed := err == nil && len(current) == 0 && len(rows) > 1
		if !isMixed && !store.IsBlobGone(err) || stored.ETag == seen {
			return stored, err
		}
		seen = stored.ETag
	}
	return History{}, changedTooOften(instanceID)
}

// Current is [Histories.Load] of the current execution. It also returns its rows, without the
// sentinel.
func (h *Histories) Current(ctx context.Context, instanceID string) (History, []*wire.HistoryRow, error) {
	rows, err := h.rowsOf(ctx, instanceID, "")
	if err != nil {
		return History{}, nil, err
	}
	return h.resolve(ctx, rows, "")
}

// resolve converts the rows of an instance into a history. It also returns the rows of that history.
// After an error the result has no events.
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

// rowsOf returns a consistent snapshot of an instance's rows, ordered by key. If executionID is not
// empty, it returns only the rows of this execution and the sentinel.
//
// A single page is consistent. With several pages, a checkpoint may be committed between two of them:
// the earlier pages lack its rows, while the sentinel in the last page includes it. Several pages are
// therefore valid only if the sentinel's ETag is the same before the first page and in the last. .NET
// does not check this (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
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
	return nil, changedTooOften(instanceID)
}

func changedTooOften(instanceID string) error {
	return fmt.Errorf("the history of %q changed %d times while it was read", instanceID, maxHistoryReads)
}

// maxHistoryReads is the maximum number of reads of a history that changes during the read. Only its
// owner and its previous owners change it.
const maxHistoryReads = 5

// SentinelETag returns the stored ETag of an instance's sentinel, empty if the history has no
// sentinel.
func (h *Histories) SentinelETag(ctx context.Context, instanceID string) (string, error) {
	sentinel, err := h.Row(ctx, instanceID, wire.SentinelRowKey)
	if err != nil || sentinel == nil {
		return "", err
	}
	return sentinel.ETag(), nil
}

// Row returns a row of an instance's history, nil if the row does not exist.
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

// pages returns a reader for the rows of rowsOf.
func (h *Histories) pages(instanceID, executionID string) *historyPages {
	filter := "PartitionKey eq '" + store.EscapeOData(wire.EscapeKey(instanceID)) + "'"
	if executionID != "" {
		filter += " and (RowKey eq '" + wire.SentinelRowKey + "' or ExecutionId eq '" + store.EscapeOData(executionID) + "')"
	}
	return &historyPages{histories: h, query: store.Query{Filter: filter}}
}

// resolveColumns reads the columns that are stored in blobs.
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
	err := store.ForEach(ctx, blobsAtOnce, columns, func(ctx context.Context, _ int, c *column) (err error) {
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

// blobsAtOnce is the maximum number of concurrent blob reads for one instance.
const blobsAtOnce = 8

// Encode returns the history rows of events and writes their large columns into blobs. ordinal is the
// number of the first row.
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

// purgesAtOnce is the maximum number of concurrent requests of one purge.
const purgesAtOnce = 10

// RowVersion identifies a row and its ETag.
type RowVersion struct{ RowKey, etag string }

// Versions returns all rows of an instance in the history table, including older executions, ordered
// by key.
func (h *Histories) Versions(ctx context.Context, id string) ([]RowVersion, error) {
	var versions []RowVersion
	q := store.Query{Filter: "PartitionKey eq '" + store.EscapeOData(wire.EscapeKey(id)) + "'", Columns: []string{"PartitionKey", "RowKey"}}
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

// Remove deletes rows of an instance's history in transactions of the maximum size. The first transaction
// deletes the first rows and the sentinel: if the history was appended to or rewound, Remove deletes
// nothing. After an interruption no ExecutionStarted is left, so .NET discards messages to the instance
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs, IsExecutableInstance). With the start, it
// would run the rest of the history again.
func (h *Histories) Remove(ctx context.Context, id string, versions []RowVersion) error {
	n := len(versions)
	if n == 0 {
		return nil
	}
	first := min(n-1, store.MaxTransactionOperations-1)
	batches := [][]RowVersion{append(slices.Clone(versions[:first]), versions[n-1])} // the sentinel is the last row
	batches = slices.AppendSeq(batches, slices.Chunk(versions[first:n-1], store.MaxTransactionOperations))
	remove := func(ctx context.Context, _ int, batch []RowVersion) error {
		ops := make([]store.Operation, len(batch))
		for i, v := range batch {
			ops[i] = store.Operation{Method: http.MethodDelete, Entity: wire.Row{PartitionKey: wire.EscapeKey(id), RowKey: v.RowKey}, IfMatch: v.etag}
		}
		return h.HistoryTable.RemoveAll(ctx, ops)
	}
	if err := remove(ctx, 0, batches[0]); err != nil {
		return err
	}
	return store.ForEach(ctx, purgesAtOnce, batches[1:], remove)
}

// rewindEdits returns the changes to the rows of a rewound execution, in the order of the rows. Other
// columns keep their values, including columns that this package does not know.
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
	for _, at := range x.MarkChildren {
		edit(at)
	}
	for _, at := range x.Replace {
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

// Rewind changes the rows of a rewound execution. It also changes the ETag of the sentinel, which must
// be the given one.
func (h *Histories) Rewind(ctx context.Context, x provider.RewoundExecution, rows []*wire.HistoryRow, sentinel string) error {
	edits := rewindEdits(x, rows)
	if sentinel != "" && len(edits) > 0 {
		touch := wire.Row{PartitionKey: wire.EscapeKey(x.Instance.InstanceID), RowKey: wire.SentinelRowKey}
		edits = append(edits, store.Operation{Method: http.MethodPatch, Entity: touch, IfMatch: sentinel})
	}
	return h.edit(ctx, edits)
}

// edit applies the changes in as few transactions as possible. The last transaction contains the event
// that ended the execution, and the sentinel. Until it succeeds, the execution counts as ended, and
// another rewind completes the changes.
func (h *Histories) edit(ctx context.Context, ops []store.Operation) error {
	for len(ops) > 0 {
		n := min(len(ops), store.MaxTransactionOperations)
		if len(ops)-n == 1 { // the last operation is the sentinel; keep it with the row before
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

// historyPages reads the rows of a history page by page.
type historyPages struct {
	histories *Histories
	query     store.Query
	scanner   wire.RowScanner
	rows      []*wire.HistoryRow // read so far
	begun     bool
}

// last reports whether the last page has been read.
func (p *historyPages) last() bool { return p.begun && p.query.Continuation == "" }

// next reads the next page.
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

// rest reads the remaining pages and returns all rows.
func (p *historyPages) rest(ctx context.Context) ([]*wire.HistoryRow, error) {
	for !p.last() {
		if err := p.next(ctx); err != nil {
			return nil, err
		}
	}
	return p.rows, nil
}
