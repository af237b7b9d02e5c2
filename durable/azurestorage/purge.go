package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Purger = (*TaskHub)(nil)

// purgesAtOnce bounds how many requests one purge makes at a time.
const purgesAtOnce = 10

// Purge implements [provider.Purger]. What was seen is compared with the instance row,
// which is read after the history: what began in between is not purged in the place of
// what was before. The row goes last: whoever was cut off finds it, and does the rest by
// purging again. So that it can be read, it names no blobs any more when they go. Rows
// are deleted as they were read, the sentinel first, and no blobs that were not there
// before that: if somebody starts the ID anew meanwhile, that one stays, and the error
// says so
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// DeleteAllDataForOrchestrationInstance).
//
// Messages that are still on their way to the instance are discarded when they
// arrive, but those to an entity, which begins anew with them.
func (h *TaskHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	if err := wire.CheckID(id); err != nil {
		return err
	}
	if err := h.ensureCreated(ctx); err != nil {
		return err
	}
	defer h.forget(id)
	blobs, err := h.blobsOf(ctx, id)
	if err != nil {
		return err
	}
	past, err := h.historyVersions(ctx, id)
	if err != nil {
		return err
	}
	row, err := h.fetchInstanceRow(ctx, id, provider.Fetch{Input: true, Output: true})
	if err != nil {
		return err
	}
	if row == nil && len(past) == 0 {
		return provider.ErrInstanceNotFound
	}
	if seen != nil && !row.StateOrNil().SameAs(seen) {
		return provider.ErrInstanceChanged
	}
	if err := h.purgeHistory(ctx, id, past); err != nil {
		return changedSince(err)
	}
	if row, err = h.withoutBlobs(ctx, row); err != nil {
		return changedSince(err)
	}
	if err := h.largeMessages.RemoveAll(ctx, blobs); err != nil {
		return err
	}
	if h.cfg.JumpStart.Enabled {
		if err := h.dropStarts(ctx, id); err != nil {
			return err
		}
	}
	if row == nil {
		return nil
	}
	err = h.instancesTable.RemoveRow(ctx, wire.Row{PartitionKey: wire.EscapeKey(id)}, row.ETag)
	if err == nil {
		h.log.Info("instance purged", "instanceId", id, "executionId", row.State.Instance.ExecutionID, "rows", len(past)+1)
	}
	return changedSince(err)
}

// withoutBlobs has an instance's row, which may be nil, name no blobs any more, and
// returns it as it is then.
func (h *TaskHub) withoutBlobs(ctx context.Context, row *wire.InstanceRow) (*wire.InstanceRow, error) {
	for n := 1; row != nil; n++ {
		e := wire.Row{PartitionKey: wire.EscapeKey(row.State.Instance.InstanceID)}
		for _, column := range h.blobColumns(row) {
			e.SetString(column, "")
		}
		if len(e.Properties) == 0 {
			return row, nil
		}
		var etag string
		err := store.Retry(ctx, "let the row of an instance name no blobs", func(ctx context.Context) (err error) {
			etag, err = h.instancesTable.Merge(ctx, e, row.ETag)
			return err
		})
		if err == nil {
			row.ETag = etag
			return row, nil
		}
		if !store.IsConflict(err) || n == maxRowAttempts {
			return nil, err
		}
		before := row.StateOrNil()
		if row, err = h.fetchInstanceRow(ctx, before.Instance.InstanceID, provider.Fetch{Input: true, Output: true}); err != nil {
			return nil, err
		}
		if row != nil && !row.StateOrNil().SameAs(before) { // else an attempt whose answer was lost was our own
			return nil, provider.ErrInstanceChanged
		}
	}
	return nil, nil
}

// blobColumns returns the columns by which a row names blobs.
func (h *TaskHub) blobColumns(row *wire.InstanceRow) (columns []string) {
	names := func(value *string) bool {
		if value == nil {
			return false
		}
		_, ok := wire.OwnBlobName(h.largeMessages.URL, row.State.Instance.InstanceID, *value)
		return ok
	}
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"Input", names(row.State.Input)},
		{"Input" + wire.BlobNameSuffix, row.InputBlob != ""},
		{"Output", names(row.State.Output)},
		{"Tags" + wire.BlobNameSuffix, row.TagsBlob != ""},
	} {
		if c.is {
			columns = append(columns, c.name)
		}
	}
	return columns
}

// changedSince makes a conflict tell what a purge came across.
func changedSince(err error) error {
	if store.IsConflict(err) {
		return fmt.Errorf("it has changed since it was looked at, and not all of it is deleted; look at it, and purge it again if it is to go: %w", err)
	}
	return err
}

// rowVersion is a row as it was at some time.
type rowVersion struct{ rowKey, etag string }

// historyVersions returns all rows that the history table has of an instance, of older
// executions too, in the order of their keys.
func (h *TaskHub) historyVersions(ctx context.Context, id string) ([]rowVersion, error) {
	var versions []rowVersion
	q := store.Query{Filter: "PartitionKey eq '" + store.Doubled(wire.EscapeKey(id)) + "'", Columns: []string{"PartitionKey", "RowKey"}}
	err := h.historyTable.All(ctx, q, func(raw []byte) error {
		var row struct {
			RowKey string
			ETag   string `json:"odata.etag"`
		}
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode history row: %w", err)
		}
		versions = append(versions, rowVersion{row.RowKey, row.ETag})
		return nil
	})
	return versions, err
}

// purgeHistory deletes rows of an instance's history, as many at a time as a
// transaction takes. The last of them, with the sentinel, go first: if the history has
// gone on, or was rewound, all of it stays.
func (h *TaskHub) purgeHistory(ctx context.Context, id string, versions []rowVersion) error {
	var batches [][]store.Operation
	for chunk := range slices.Chunk(versions, store.MaxTransactionOperations) {
		ops := make([]store.Operation, len(chunk))
		for i, v := range chunk {
			ops[i] = store.Operation{Method: http.MethodDelete, Entity: wire.Row{PartitionKey: wire.EscapeKey(id), RowKey: v.rowKey}, IfMatch: v.etag}
		}
		batches = append(batches, ops)
	}
	if len(batches) == 0 {
		return nil
	}
	last := len(batches) - 1
	if err := h.historyTable.RemoveAll(ctx, batches[last]); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(purgesAtOnce)
	for _, ops := range batches[:last] {
		group.Go(func() error { return h.historyTable.RemoveAll(ctx, ops) })
	}
	return group.Wait()
}

// blobsOf returns the names of the blobs with an instance's large payloads: messages
// are under its ID, history under its key. .NET deletes all whose names begin with
// the ID, which can be those of other instances
// (DurableTask.AzureStorage/MessageManager.cs, DeleteLargeMessageBlobs).
//
// The service takes a backslash in a blob's name for a slash. Large messages to
// an ID with a backslash, which clients refuse, stay behind, since they cannot
// be told from those to an ID with a slash.
func (h *TaskHub) blobsOf(ctx context.Context, id string) ([]string, error) {
	var names []string
	for _, prefix := range []string{id + "/message-", wire.EscapeKey(id) + "/history-"} {
		more, err := h.largeMessages.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}
