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

// Table is one table of the hub. Its methods make one request each, unless
// they say otherwise.
type Table struct {
	Name     string
	endpoint string // of the service
	Client   *aztables.Client
}

// NewTable returns the table with the name, which need not exist. endpoint is the address
// of the table service.
func NewTable(service *aztables.ServiceClient, endpoint, name string) *Table {
	return &Table{Name: name, endpoint: endpoint, Client: service.NewClient(name)}
}

// Create makes the table if it is not there.
func (t *Table) Create(ctx context.Context) error {
	return retryCreation(ctx, "create table "+t.Name, func(ctx context.Context) error {
		_, err := t.Client.CreateTable(ctx, nil)
		return ignoreExisting(err)
	})
}

// Insert adds a row; it is a conflict if there is one.
func (t *Table) Insert(ctx context.Context, e wire.Row) (etag string, err error) {
	return t.write(ctx, http.MethodPost, e, "")
}

// Replace puts e in the place of the row that has the ETag.
func (t *Table) Replace(ctx context.Context, e wire.Row, etag string) (newETag string, err error) {
	return t.write(ctx, http.MethodPut, e, etag)
}

// Merge changes those columns that e has in the row with the ETag; "*" is any
// ETag, and with "" the row is made if there is none.
func (t *Table) Merge(ctx context.Context, e wire.Row, etag string) (newETag string, err error) {
	return t.write(ctx, http.MethodPatch, e, etag)
}

// write makes one request that changes a row. aztables refuses rows with an
// empty key, of which DurableTask has two kinds; so it gets a placeholder,
// and sends the real row.
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

// Get returns a row as JSON; not found is an error for which isNotFound is
// true.
func (t *Table) Get(ctx context.Context, partitionKey, rowKey string) ([]byte, error) {
	format := aztables.MetadataFormatMinimal
	resp, err := t.Client.GetEntity(ctx, partitionKey, rowKey, &aztables.GetEntityOptions{Format: &format})
	return resp.Value, err
}

// MaxPageSize is the most rows that the service returns at once.
const MaxPageSize = 1000

// Query selects rows.
type Query struct {
	Filter string
	// columns to return; all if it is empty.
	Columns []string
	// top bounds the rows of a page; 0 is the service's bound.
	Top int
	// continuation is where to go on, from the page before.
	Continuation string
}

// Page returns one page of rows as JSON, and the continuation if there are
// more. It makes several attempts. A page can be empty and yet not the last.
//
// The service says where a page ends in two headers, such as "1!8!U21pdGg-", which is
// Base64 of its own kind, and "1!8!QmVuOTk5". The one for the row key may be empty or
// missing; where the service does that it has not been documented. It must then be
// missing in the next request, too: if it is empty there, the service answers 400
// (https://github.com/Azure/azure-sdk-for-js/issues/20913). Azurite returns an empty
// one for an empty row key, as all rows of the instances table have it, and takes it
// either way
// (https://learn.microsoft.com/rest/api/storageservices/query-timeout-and-pagination).
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

// All calls each with every row that matches q, page by page.
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

// RemoveAll deletes rows together, or one by one, the last first, if some of them are
// gone already (DurableTask.AzureStorage/Storage/Table.cs, DeleteBatchAsync).
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

// Remove deletes a row if it is there.
func (t *Table) Remove(ctx context.Context, e wire.Row) error { return t.RemoveRow(ctx, e, "*") }

// RemoveRow deletes a row, if it is there, that must have the ETag.
func (t *Table) RemoveRow(ctx context.Context, e wire.Row, etag string) error {
	return Retry(ctx, "delete row of table "+t.Name, func(ctx context.Context) error {
		_, err := t.Transact(ctx, []Operation{{Method: http.MethodDelete, Entity: e, IfMatch: etag}})
		return Ignore(err, http.StatusNotFound)
	})
}
