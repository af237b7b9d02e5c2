package azuritetest

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"
)

func TestCounter_NamesTheRequestsOfTheSDKs(t *testing.T) {
	connection := Start(t)
	counter := NewCounter(connection, nil)
	name := anyName()
	askEverything(t, connection, counter, name)

	want := map[Call]int{
		{"queue", "CreateQueue", name}: 1, {"queue", "PutMessage", name}: 1, {"queue", "GetMessages", name}: 1,
		{"queue", "UpdateMessage", name}: 1, {"queue", "DeleteMessage", name}: 1,
		{"table", "CreateTable", ""}: 1, {"table", "InsertEntity", tableName(name)}: 1, {"table", "MergeEntity", tableName(name)}: 1,
		{"table", "EntityGroupTransaction", tableName(name)}: 1, {"table", "QueryEntities", tableName(name)}: 1,
		{"blob", "CreateContainer", name}: 1, {"blob", "PutBlob", name}: 1, {"blob", "GetBlob", name}: 1,
	}
	if diff := cmp.Diff(want, counter.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// askEverything makes a request for every operation that calls have names for, with a queue, a
// table and a container of the given name.
func askEverything(t *testing.T, connection string, counter *Counter, name string) {
	t.Helper()
	options := azcore.ClientOptions{Transport: counter, Retry: policy.RetryOptions{MaxRetries: -1}}
	queues := must(azqueue.NewServiceClientFromConnectionString(connection, &azqueue.ClientOptions{ClientOptions: options}))
	tables := must(aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{ClientOptions: options}))
	blobs := must(azblob.NewClientFromConnectionString(connection, &azblob.ClientOptions{ClientOptions: options}))
	ctx := t.Context()

	queue := queues.NewQueueClient(name)
	check(t, second(queue.Create(ctx, nil)))
	check(t, second(queue.DequeueMessage(ctx, nil))) // empty polls are not counted
	check(t, second(queue.EnqueueMessage(ctx, "x", nil)))
	got := must(queue.DequeueMessage(ctx, nil))
	m := got.Messages[0]
	up := must(queue.UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "x", nil))
	check(t, second(queue.DeleteMessage(ctx, *m.MessageID, *up.PopReceipt, nil)))

	rows := tables.NewClient(tableName(name))
	check(t, second(rows.CreateTable(ctx, nil)))
	row := []byte(`{"PartitionKey":"p","RowKey":"1"}`)
	check(t, second(rows.AddEntity(ctx, row, nil)))
	check(t, second(rows.UpsertEntity(ctx, row, &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeMerge})))
	check(t, second(rows.SubmitTransaction(ctx, []aztables.TransactionAction{{ActionType: aztables.TransactionTypeInsertReplace, Entity: row}}, nil)))
	for pages := rows.NewListEntitiesPager(nil); pages.More(); {
		check(t, second(pages.NextPage(ctx)))
	}

	check(t, second(blobs.CreateContainer(ctx, name, nil)))
	check(t, second(blobs.UploadBuffer(ctx, name, "a", []byte("x"), nil)))
	check(t, second(blobs.DownloadStream(ctx, name, "a", nil)))
}

func TestCounter_InterceptCanRejectARequest(t *testing.T) {
	connection := Start(t)
	counter := NewCounter(connection, nil)
	counter.Intercept = func(call Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		return ErrorResponse(req, http.StatusServiceUnavailable, "ServerBusy"), nil
	}
	options := azcore.ClientOptions{Transport: counter, Retry: policy.RetryOptions{MaxRetries: -1}}
	table := must(aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{ClientOptions: options})).NewClient("Refused")

	_, err := table.CreateTable(t.Context(), nil)

	var refused *azcore.ResponseError
	if !errors.As(err, &refused) || refused.StatusCode != 503 || refused.ErrorCode != "ServerBusy" {
		t.Errorf("err = %v, want 503 ServerBusy", err)
	}
}

// anyName returns a random name that no other test uses.
func anyName() string { return "n" + strings.ToLower(rand.Text()) }

func tableName(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func second[T any](_ T, err error) error { return err }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
