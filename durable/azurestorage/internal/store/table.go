package store

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Table is a table of a task hub. Unless documented otherwise, its methods send one request and do not
// retry.
type Table struct {
	Name     string
	endpoint string // URL of the service
	Client   *aztables.Client
}

// NewTable returns the table with the given name, which need not exist. endpoint is the URL of the
// table service.
func NewTable(service *aztables.ServiceClient, endpoint, name string) *Table {
	return &Table{Name: name, endpoint: endpoint, Client: service.NewClient(name)}
}

// Create creates the table if it does not exist.
func (t *Table) Create(ctx context.Context) error {
	return retryCreation(ctx, "create table "+t.Name, func(ctx context.Context) error {
		_, err := t.Client.CreateTable(ctx, nil)
		return ignoreExisting(err)
	})
}

// Insert inserts a row. If the row exists, the error is a conflict.
func (t *Table) Insert(ctx context.Context, e wire.Row) (etag string, err error) {
	return t.write(ctx, http.MethodPost, e, "")
}

// Replace replaces the row that has the ETag with e.
func (t *Table) Replace(ctx context.Context, e wire.Row, etag string) (newETag string, err error) {
	return t.write(ctx, http.MethodPut, e, etag)
}

// Merge changes the columns of e in the row that has the ETag. "*" matches any ETag. With "", Merge
// inserts the row if it does not exist.
func (t *Table) Merge(ctx context.Context, e wire.Row, etag string) (newETag string, err error) {
	return t.write(ctx, http.MethodPatch, e, etag)
}

// write sends one request that changes a row. aztables rejects rows with an empty key, which two kinds
// of DurableTask's rows have. It therefore receives a placeholder, and a substitution sends the real
// row.
func (t *Table) write(ctx context.Context, method string, e wire.Row, etag string) (newETag string, err error) {
	path := "/" + t.Name
	if method != http.MethodPost {
		path += keysURL(e.PartitionKey, e.RowKey)
	}
	resp, err := t.Client.UpsertEntity(substitute(ctx, substitution{
		method: method, url: t.endpoint + path, ifMatch: etag,
		contentType: "application/json", body: e.JSON(),
	}), placeholderEntity, nil)
	return string(resp.ETag), err
}

// Get returns a row as JSON. If the row does not exist, [IsNotFound] is true for the error.
func (t *Table) Get(ctx context.Context, partitionKey, rowKey string) ([]byte, error) {
	format := aztables.MetadataFormatMinimal
	resp, err := t.Client.GetEntity(ctx, partitionKey, rowKey, &aztables.GetEntityOptions{Format: &format})
	return resp.Value, err
}

// MaxPageSize is the service's maximum number of rows in one page.
const MaxPageSize = 1000

// Query selects rows.
type Query struct {
	Filter string
	// Columns to return; empty means all.
	Columns []string
	// Top is the maximum number of rows in a page; 0 means the service's maximum.
	Top int
	// Continuation is the continuation of the previous page.
	Continuation string
}

// Page returns one page of rows as JSON, and the continuation if more rows follow. It retries. A page
// may be empty without being the last page.
//
// The service returns a continuation in two headers, in its own Base64 encoding, such as
// "1!8!U21pdGg-" and "1!8!QmVuOTk5". The header of the row key may be empty or missing; the
// documentation does not say when. The next request must then omit it: the service answers an empty
// one with status 400 (https://github.com/Azure/azure-sdk-for-js/issues/20913). Azurite returns an
// empty header for an empty row key, which all rows of the instances table have, and accepts both
// forms (https://learn.microsoft.com/rest/api/storageservices/query-timeout-and-pagination).
func (t *Table) Page(ctx context.Context, q Query) (rows [][]byte, continuation string, err error) {
	format := aztables.MetadataFormatMinimal
	options := &aztables.ListEntitiesOptions{Format: &format}
	if q.Filter != "" {
		options.Filter = &q.Filter
	}
	if len(q.Columns) > 0 {
		options.Select = new(strings.Join(q.Columns, ","))
	}
	if q.Top > 0 {
		options.Top = new(int32(q.Top))
	}
	if q.Continuation != "" {
		next, err := provider.DecodeContinuation(q.Continuation, 2)
		if err != nil {
			return nil, "", err
		}
		options.NextPartitionKey = &next[0]
		if next[1] != "" {
			options.NextRowKey = &next[1]
		}
	}
	err = Retry(ctx, "query table "+t.Name, func(ctx context.Context) error {
		answer, err := t.Client.NewListEntitiesPager(options).NextPage(ctx)
		if err != nil {
			return err
		}
		rows, continuation = answer.Entities, ""
		if answer.NextPartitionKey != nil && *answer.NextPartitionKey != "" {
			continuation = provider.EncodeContinuation(*answer.NextPartitionKey, Value(answer.NextRowKey))
		}
		return nil
	})
	if q.Continuation != "" && StatusOf(err) == http.StatusBadRequest {
		err = fmt.Errorf("%w: %w", provider.ErrContinuation, err)
	}
	return rows, continuation, err
}

// All calls each for every row that q selects, page by page.
func (t *Table) All(ctx context.Context, q Query, each func(row []byte) error) error {
	for {
		rows, continuation, err := t.Page(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := each(row); err != nil {
				return err
			}
		}
		if continuation == "" {
			return nil
		}
		q.Continuation = continuation
	}
}

// RemoveAll deletes rows in one transaction. If some of them do not exist, it deletes the rows one by
// one, the last first (DurableTask.AzureStorage/Storage/Table.cs, DeleteBatchAsync).
func (t *Table) RemoveAll(ctx context.Context, ops []Operation) error {
	err := Retry(ctx, "delete rows of table "+t.Name, func(ctx context.Context) error {
		_, err := t.Transact(ctx, ops)
		return err
	})
	if !IsNotFound(err) {
		return err
	}
	for _, op := range slices.Backward(ops) {
		if err := t.RemoveRow(ctx, op.Entity, op.IfMatch); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes a row if it exists.
func (t *Table) Remove(ctx context.Context, e wire.Row) error { return t.RemoveRow(ctx, e, "*") }

// RemoveRow deletes a row if it exists. The row must have the ETag.
func (t *Table) RemoveRow(ctx context.Context, e wire.Row, etag string) error {
	return Retry(ctx, "delete row of table "+t.Name, func(ctx context.Context) error {
		_, err := t.Transact(ctx, []Operation{{Method: http.MethodDelete, Entity: e, IfMatch: etag}})
		return Ignore(err, http.StatusNotFound)
	})
}
