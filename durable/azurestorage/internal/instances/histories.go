package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Histories reads and writes the histories of instances.
type Histories struct {
	Table *store.Table
	blobs *store.Container
	log   *slog.Logger
	// beginWithin is for how long the write of a history that begins is tried again.
	beginWithin time.Duration
}

// Append writes rows to an instance's history, in as many transactions
// as they need, each of which must find the sentinel as the one before left it
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UploadHistoryBatch). It returns the sentinel's new ETag, and how many rows are
// known to be written. [provider.ErrSessionLost] means that somebody else wrote
// in between. notes are more columns of the sentinel.
func (h *Histories) Append(ctx context.Context, instance history.OrchestrationInstance, rows []wire.Row, etag string, notes map[string]string) (newETag string, written int, err error) {
	for _, batch := range splitHistory(rows) {
		last := batch.complete
		w := historyWrite{histories: h, instance: instance, rows: batch.rows, complete: last, at: history.Ticks(time.Now()), notes: notes}
		if etag, err = w.do(ctx, etag); err != nil {
			return "", written, err
		}
		written += len(batch.rows)
		h.log.Debug("AppendedInstanceHistory", "instanceId", instance.InstanceID, "executionId", instance.ExecutionID, "rows", len(batch.rows), "complete", last)
	}
	return etag, written, nil
}

// Load reads the history of the execution that is wanted, or of the
// current one
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync). If another execution than the wanted one is current,
// there are no events, but the sentinel's ETag is what the first checkpoint of
// the wanted one must meet.
func (h *Histories) Load(ctx context.Context, instanceID, executionID string) (History, error) {
	rows, err := h.rowsOf(ctx, instanceID, executionID)
	if err != nil {
		return History{}, err
	}
	return h.resolve(ctx, rows, executionID)
}

// View is Load of the current execution for a caller that changes nothing: what is appended while it is read may be missing.
func (h *Histories) View(ctx context.Context, instanceID string) (History, error) {
	rows, err := h.pages(instanceID, "").rest(ctx)
	if err != nil {
		return History{}, err
	}
	return h.resolve(ctx, rows, "")
}

// resolve makes a history of an instance's rows. With an error, it has no events.
func (h *Histories) resolve(ctx context.Context, rows []*wire.HistoryRow, executionID string) (History, error) {
	current, stored := currentExecution(rows, executionID)
	if err := h.resolveColumns(ctx, current); err != nil {
		return stored, err
	}
	for _, row := range current {
		ev, err := row.Event()
		if err != nil {
			return History{}, err
		}
		stored.bytes += row.Size
		stored.Events = append(stored.Events, ev)
		stored.Known.Add(ev)
	}
	return stored, nil
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

// maxHistoryReads is how often a history is read that changes meanwhile. Nobody
// but the owner of the instance changes it, and those who had it before.
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
		raw, err = h.Table.Get(ctx, wire.EscapeKey(instanceID), rowKey)
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
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobsAtOnce)
	for _, c := range columns {
		group.Go(func() (err error) {
			c.text, err = h.blobs.Read(ctx, c.from.Blob)
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

// Encode returns the history rows of events, the first of which has the
// given ordinal, with their large columns in blobs.
func (h *Histories) Encode(ctx context.Context, instanceID, executionID string, ordinal int, events []history.Event) ([]wire.Row, error) {
	rows := make([]wire.Row, len(events))
	for i, ev := range events {
		rows[i] = wire.EncodeHistoryRow(ev, instanceID, ordinal+i, executionID)
		for _, column := range rows[i].LargeColumns() {
			name := rows[i].ColumnBlobName(column, rand.Uint32())
			if err := h.blobs.Write(ctx, name, []byte(rows[i].Text(column))); err != nil {
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
	err := h.Table.All(ctx, q, func(raw []byte) error {
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
	if err := h.Table.RemoveAll(ctx, batches[last]); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(purgesAtOnce)
	for _, ops := range batches[:last] {
		group.Go(func() error { return h.Table.RemoveAll(ctx, ops) })
	}
	return group.Wait()
}

// Current returns the rows of an instance's current execution, without the
// sentinel, of which it returns the ETag, and their events.
func (h *Histories) Current(ctx context.Context, id string) (current []*wire.HistoryRow, sentinel string, events []history.Event, err error) {
	rows, err := h.rowsOf(ctx, id, "")
	if err != nil {
		return nil, "", nil, err
	}
	current, stored := currentExecution(rows, "")
	if err := h.resolveColumns(ctx, current); err != nil {
		return nil, "", nil, err
	}
	events = make([]history.Event, len(current))
	for i, row := range current {
		if events[i], err = row.Event(); err != nil {
			return nil, "", nil, err
		}
	}
	return current, stored.ETag, events, nil
}

// RewindEdits returns the changes to the rows of a rewound execution, those of
// its last rows last. Columns that are not named keep their values, so that
// nothing is lost of what this package does not know.
func RewindEdits(x provider.RewoundExecution, rows []*wire.HistoryRow) []store.Operation {
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

// Edit makes the changes in as few transactions as can be. The end of
// the execution goes with the last of them, and so does the sentinel: until then
// it counts as ended, and rewinding it again does the rest.
func (h *Histories) Edit(ctx context.Context, ops []store.Operation) error {
	for len(ops) > 0 {
		n := min(len(ops), store.MaxTransactionOperations)
		if len(ops)-n == 1 { // that would be the sentinel
			n--
		}
		again := func(err error) bool { return store.IsTransient(err) && store.WasNotApplied(err) }
		err := store.RetryIf(ctx, "update rows", again, func(ctx context.Context) error {
			_, err := h.Table.Transact(ctx, ops[:n])
			return err
		})
		if err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}
