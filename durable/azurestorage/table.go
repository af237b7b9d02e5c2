package azurestorage

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// table is one table of the hub. Its methods make one request each, unless
// they say otherwise.
type table struct {
	name     string
	endpoint string // of the service
	client   *aztables.Client
}

func newTable(service *aztables.ServiceClient, endpoint, name string) *table {
	return &table{name: name, endpoint: endpoint, client: service.NewClient(name)}
}

// create makes the table if it is not there.
func (t *table) create(ctx context.Context) error {
	return retry(ctx, "create table "+t.name, func(ctx context.Context) error {
		_, err := t.client.CreateTable(ctx, nil)
		return ignoreExisting(err)
	})
}

// insert adds a row; it is a conflict if there is one.
func (t *table) insert(ctx context.Context, e entity) (etag string, err error) {
	return t.write(ctx, http.MethodPost, e, "")
}

// replace puts e in the place of the row that has the ETag.
func (t *table) replace(ctx context.Context, e entity, etag string) (newETag string, err error) {
	return t.write(ctx, http.MethodPut, e, etag)
}

// merge changes those columns that e has in the row with the ETag; "*" is any
// ETag, and with "" the row is made if there is none.
func (t *table) merge(ctx context.Context, e entity, etag string) (newETag string, err error) {
	return t.write(ctx, http.MethodPatch, e, etag)
}

// write makes one request that changes a row. aztables refuses rows with an
// empty key, of which DurableTask has two kinds; so it is asked to write
// another, and sends what is to be sent.
func (t *table) write(ctx context.Context, method string, e entity, etag string) (newETag string, err error) {
	path := "/" + t.name
	if method != http.MethodPost {
		path += keysURL(e.PartitionKey, e.RowKey)
	}
	resp, err := t.client.UpsertEntity(substitute(ctx, substitution{
		method: method, url: t.endpoint + path, ifMatch: etag,
		contentType: "application/json", body: e.JSON(),
	}), placeholderEntity, nil)
	return string(resp.ETag), err
}

// get returns a row as JSON; not found is an error for which isNotFound is
// true.
func (t *table) get(ctx context.Context, partitionKey, rowKey string) ([]byte, error) {
	format := aztables.MetadataFormatMinimal
	resp, err := t.client.GetEntity(ctx, partitionKey, rowKey, &aztables.GetEntityOptions{Format: &format})
	return resp.Value, err
}

// tableQuery selects rows.
type tableQuery struct {
	filter string
	// columns to return; all if it is empty.
	columns []string
	// top bounds the rows of a page; 0 is the service's bound.
	top int
	// continuation is where to go on, from the page before.
	continuation string
}

// page returns one page of rows as JSON, and the continuation if there are
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
func (t *table) page(ctx context.Context, q tableQuery) (rows [][]byte, continuation string, err error) {
	format := aztables.MetadataFormatMinimal
	options := &aztables.ListEntitiesOptions{Format: &format}
	if q.filter != "" {
		options.Filter = &q.filter
	}
	if len(q.columns) > 0 {
		options.Select = new(strings.Join(q.columns, ","))
	}
	if q.top > 0 {
		options.Top = new(int32(q.top))
	}
	if q.continuation != "" {
		next, err := provider.DecodeContinuation(q.continuation, 2)
		if err != nil {
			return nil, "", err
		}
		options.NextPartitionKey = &next[0]
		if next[1] != "" {
			options.NextRowKey = &next[1]
		}
	}
	err = retry(ctx, "query table "+t.name, func(ctx context.Context) error {
		answer, err := t.client.NewListEntitiesPager(options).NextPage(ctx)
		if err != nil {
			return err
		}
		rows, continuation = answer.Entities, ""
		if answer.NextPartitionKey != nil && *answer.NextPartitionKey != "" {
			continuation = provider.EncodeContinuation(*answer.NextPartitionKey, value(answer.NextRowKey))
		}
		return nil
	})
	if q.continuation != "" && statusOf(err) == http.StatusBadRequest {
		err = fmt.Errorf("%w: %w", provider.ErrContinuation, err)
	}
	return rows, continuation, err
}

// all calls each with every row that matches q, page by page.
func (t *table) all(ctx context.Context, q tableQuery, each func(row []byte) error) error {
	for {
		rows, continuation, err := t.page(ctx, q)
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
		q.continuation = continuation
	}
}
