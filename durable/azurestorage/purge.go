package azurestorage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Purger = (*TaskHub)(nil)

// purgesAtOnce bounds how many requests one purge makes at a time.
const purgesAtOnce = 10

// Purge implements [provider.Purger]. What was seen is compared with the instance row.
// That goes last: whoever was cut off finds it, and does the rest by purging again. So
// that it can be read, it names no blobs any more when they go. Rows
// are deleted as they were read, the sentinel first, and no blobs that were not there
// before that: if somebody starts the ID anew meanwhile, that one stays, and the error
// says so
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// DeleteAllDataForOrchestrationInstance).
//
// Messages that are still on their way to the instance are discarded when they
// arrive, but those to an entity, which begins anew with them.
func (h *TaskHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	if err := h.purge(ctx, id, seen); err != nil {
		return fmt.Errorf("purge instance %q: %w", id, err)
	}
	return nil
}

func (h *TaskHub) purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	if err := checkID(id); err != nil {
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
	row, err := h.fetchInstanceRow(ctx, id, provider.Fetch{Input: true, Output: true})
	if err != nil {
		return err
	}
	past, err := h.historyVersions(ctx, id)
	if err != nil {
		return err
	}
	if row == nil && len(past) == 0 {
		return provider.ErrInstanceNotFound
	}
	if seen != nil && !row.state().SameAs(seen) {
		return provider.ErrInstanceChanged
	}
	if err := h.purgeHistory(ctx, id, past); err != nil {
		return changedSince(err)
	}
	if row, err = h.withoutBlobs(ctx, row); err != nil {
		return changedSince(err)
	}
	if err := h.largeMessages.removeAll(ctx, blobs); err != nil {
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
	err = h.instancesTable.removeRow(ctx, entity{PartitionKey: escapeKey(id)}, row.ETag)
	if err == nil {
		h.log.Info("instance purged", "instanceId", id, "executionId", row.State.Instance.ExecutionID, "rows", len(past)+1)
	}
	return changedSince(err)
}

// withoutBlobs has an instance's row, which may be nil, name no blobs any more, and
// returns it as it is then.
func (h *TaskHub) withoutBlobs(ctx context.Context, row *instanceRow) (*instanceRow, error) {
	for n := 1; row != nil; n++ {
		e := entity{PartitionKey: escapeKey(row.State.Instance.InstanceID)}
		for _, column := range h.blobColumns(row) {
			e.setString(column, "")
		}
		if len(e.properties) == 0 {
			return row, nil
		}
		var etag string
		err := retry(ctx, "let the row of an instance name no blobs", func(ctx context.Context) (err error) {
			etag, err = h.instancesTable.merge(ctx, e, row.ETag)
			return err
		})
		if err == nil {
			row.ETag = etag
			return row, nil
		}
		if !isConflict(err) || n == maxRowAttempts {
			return nil, err
		}
		before := row.state()
		if row, err = h.fetchInstanceRow(ctx, before.Instance.InstanceID, provider.Fetch{Input: true, Output: true}); err != nil {
			return nil, err
		}
		if row != nil && !row.state().SameAs(before) { // else an attempt whose answer was lost was our own
			return nil, provider.ErrInstanceChanged
		}
	}
	return nil, nil
}

// blobColumns returns the columns by which a row names blobs.
func (h *TaskHub) blobColumns(row *instanceRow) (columns []string) {
	names := func(value *string) bool {
		if value == nil {
			return false
		}
		_, ok := ownBlobName(h.largeMessages.url, row.State.Instance.InstanceID, *value)
		return ok
	}
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"Input", names(row.State.Input)},
		{"Input" + blobNameSuffix, row.InputBlob != ""},
		{"Output", names(row.State.Output)},
		{"Tags" + blobNameSuffix, row.TagsBlob != ""},
	} {
		if c.is {
			columns = append(columns, c.name)
		}
	}
	return columns
}

// changedSince makes a conflict tell what a purge came across.
func changedSince(err error) error {
	if isConflict(err) {
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
	q := tableQuery{filter: "PartitionKey eq '" + doubled(escapeKey(id)) + "'", columns: []string{"PartitionKey", "RowKey"}}
	err := h.historyTable.all(ctx, q, func(raw []byte) error {
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
	var batches [][]tableOperation
	for chunk := range slices.Chunk(versions, maxTransactionOperations) {
		ops := make([]tableOperation, len(chunk))
		for i, v := range chunk {
			ops[i] = tableOperation{method: http.MethodDelete, entity: entity{PartitionKey: escapeKey(id), RowKey: v.rowKey}, ifMatch: v.etag}
		}
		batches = append(batches, ops)
	}
	if len(batches) == 0 {
		return nil
	}
	last := len(batches) - 1
	if err := h.historyTable.removeAll(ctx, batches[last]); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(purgesAtOnce)
	for _, ops := range batches[:last] {
		group.Go(func() error { return h.historyTable.removeAll(ctx, ops) })
	}
	return group.Wait()
}

// removeAll deletes rows together, or one by one, the last first, if some of them are
// gone already (DurableTask.AzureStorage/Storage/Table.cs, DeleteBatchAsync).
func (t *table) removeAll(ctx context.Context, ops []tableOperation) error {
	err := retry(ctx, "delete rows of table "+t.name, func(ctx context.Context) error {
		_, err := t.transact(ctx, ops)
		return err
	})
	if !isNotFound(err) {
		return err
	}
	for _, op := range slices.Backward(ops) {
		if err := t.removeRow(ctx, op.entity, op.ifMatch); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a row if it is there.
func (t *table) remove(ctx context.Context, e entity) error { return t.removeRow(ctx, e, "*") }

// removeRow deletes a row, if it is there, that must have the ETag.
func (t *table) removeRow(ctx context.Context, e entity, etag string) error {
	return retry(ctx, "delete row of table "+t.name, func(ctx context.Context) error {
		_, err := t.transact(ctx, []tableOperation{{method: http.MethodDelete, entity: e, ifMatch: etag}})
		return ignore(err, http.StatusNotFound)
	})
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
	for _, prefix := range []string{id + "/message-", escapeKey(id) + "/history-"} {
		more, err := h.largeMessages.list(ctx, prefix)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}

// list returns the names that begin with prefix and have no slash after that.
func (s *blobStore) list(ctx context.Context, prefix string) (names []string, err error) {
	options := &container.ListBlobsHierarchyOptions{Prefix: &prefix}
	for {
		var page container.ListBlobsHierarchyResponse
		err := retry(ctx, "list blobs of "+s.name, func(ctx context.Context) (err error) {
			page, err = s.client.NewListBlobsHierarchyPager("/", options).NextPage(ctx)
			return ignore(err, http.StatusNotFound) // the container comes to be with the first blob
		})
		if err != nil || page.Segment == nil {
			return names, err
		}
		for _, item := range page.Segment.BlobItems {
			if name := value(item.Name); strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		if value(page.NextMarker) == "" {
			return names, nil
		}
		options.Marker = page.NextMarker
	}
}

// removeAll deletes blobs.
func (s *blobStore) removeAll(ctx context.Context, names []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(purgesAtOnce)
	for _, name := range names {
		group.Go(func() error { return s.remove(ctx, name) })
	}
	return group.Wait()
}
