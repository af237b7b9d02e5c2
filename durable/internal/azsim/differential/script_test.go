// Package differential_test compares the simulated account with Azurite. Both must answer the
// same requests in the same way, in the parts that clients read.
package differential_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/google/go-cmp/cmp"
)

// account is an account under test, with its recorded answers.
type account struct {
	queues *azqueue.ServiceClient
	tables *aztables.ServiceClient
	blobs  *azblob.Client
	notes  []string
}

func newAccount(t *testing.T, connection string, transport policy.Transporter) *account {
	t.Helper()
	options := azcore.ClientOptions{Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}}
	a := &account{}
	var errs [3]error
	a.queues, errs[0] = azqueue.NewServiceClientFromConnectionString(connection, &azqueue.ClientOptions{ClientOptions: options})
	a.tables, errs[1] = aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{ClientOptions: options})
	a.blobs, errs[2] = azblob.NewClientFromConnectionString(connection, &azblob.ClientOptions{ClientOptions: options})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return a
}

// note records the result of a step.
func (a *account) note(step string, err error, values ...any) {
	line := step + ":"
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		line += fmt.Sprintf(" %d %s", refused.StatusCode, refused.ErrorCode)
		if inner := innerError(refused); inner != "" {
			line += " " + inner
		}
	} else if err != nil {
		line += " " + err.Error()
	}
	a.notes = append(a.notes, line+" "+strings.TrimSpace(fmt.Sprintln(values...)))
}

// innerError returns the status and the code of the failed operation in the response to a
// transaction.
func innerError(refused *azcore.ResponseError) string {
	if refused.StatusCode != 202 || refused.RawResponse == nil {
		return ""
	}
	body, err := io.ReadAll(refused.RawResponse.Body)
	if err != nil {
		return err.Error()
	}
	text := string(body)
	_, status, _ := strings.Cut(text, "HTTP/1.1 ")
	_, code, _ := strings.Cut(text, `"code":"`)
	_, message, _ := strings.Cut(text, `"value":"`)
	code, _, _ = strings.Cut(code, `"`)
	index, _, _ := strings.Cut(message, ":")
	return status[:3] + " " + code + " at " + index
}

// Each script covers all operations of one service that task hubs use, and requests that must
// be refused.
func TestAccount_AnswersLikeAzurite(t *testing.T) {
	scripts := []struct {
		name string
		run  func(context.Context, *account, string)
	}{
		{"queues", queueScript},
		{"entities", entityScript},
		{"transactions", transactionScript},
		{"filters", filterScript},
		{"blobs", blobScript},
		{"leases", leaseScript},
		{"append blobs", appendScript},
	}
	azurite := azuritetest.Start(t)
	for i, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			sim := azsim.New(azsim.Config{Seed: 1})
			want, got := newAccount(t, azurite, nil), newAccount(t, sim.ConnectionString(), sim.Worker("w"))
			name := fmt.Sprintf("script%dx%d", i, runNumber.Add(1))
			s.run(t.Context(), want, name)
			s.run(t.Context(), got, name)
			if len(want.notes) == 0 {
				t.Error("the script did nothing")
			}
			if diff := cmp.Diff(want.notes, got.notes); diff != "" {
				t.Errorf("answers (-Azurite +simulated):\n%s", diff)
			}
		})
	}
}

func queueScript(ctx context.Context, a *account, name string) {
	q := a.queues.NewQueueClient(name)
	_, err := q.EnqueueMessage(ctx, "x", nil)
	a.note("put into a queue that is not there", err)
	for range 2 {
		_, err = q.Create(ctx, nil)
		a.note("create", err)
	}
	_, err = q.Create(ctx, &azqueue.CreateOptions{Metadata: map[string]*string{"a": new("b")}})
	a.note("create with other metadata", err)
	empty, err := q.DequeueMessages(ctx, nil)
	a.note("get from an empty queue", err, len(empty.Messages))

	put := func(step, text string, o *azqueue.EnqueueMessageOptions) (id, receipt string) {
		resp, err := q.EnqueueMessage(ctx, text, o)
		a.note(step, err, len(resp.Messages))
		if len(resp.Messages) == 0 {
			return "", ""
		}
		m := resp.Messages[0]
		a.note(step, nil, m.MessageID != nil, m.PopReceipt != nil, m.TimeNextVisible.Sub(*m.InsertionTime), m.ExpirationTime.Year())
		return *m.MessageID, *m.PopReceipt
	}
	get := func(step string, n, hide int32) *azqueue.DequeuedMessage {
		resp, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: &n, VisibilityTimeout: &hide})
		a.note(step, err, len(resp.Messages))
		for _, m := range resp.Messages {
			a.note(step, nil, *m.MessageText, *m.DequeueCount)
		}
		if len(resp.Messages) == 0 {
			return &azqueue.DequeuedMessage{MessageID: new("none"), PopReceipt: new("none")}
		}
		return resp.Messages[0]
	}
	put("put", `{"a":"<b> & 'c' \"d\"","e":"ä€😀"}`, &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))})
	put("put line ends", "one\r\ntwo\n three ", nil)
	m := get("get one", 1, 30)
	get("get the other", 32, 30)
	get("get nothing", 32, 30)
	_, err = q.UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "changed", &azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(0))})
	a.note("update", err)
	_, err = q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
	a.note("delete with an old receipt", err)
	m = get("get again", 1, 30)
	_, err = q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
	a.note("delete", err)
	_, err = q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
	a.note("delete again", err)
	_, err = q.UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "x", &azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(0))})
	a.note("update what is gone", err)

	id, receipt := put("put hidden", "hidden", &azqueue.EnqueueMessageOptions{VisibilityTimeout: new(int32(60))})
	get("get what is hidden", 32, 30)
	up, err := q.UpdateMessage(ctx, id, receipt, "shown", &azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(0))})
	a.note("show", err, up.PopReceipt != nil)
	_, err = q.DeleteMessage(ctx, id, *up.PopReceipt, nil)
	a.note("delete what nobody received", err)
	for _, bad := range []*azqueue.EnqueueMessageOptions{
		{VisibilityTimeout: new(int32(604801))},
		{VisibilityTimeout: new(int32(-1))},
		{TimeToLive: new(int32(0))},
		{TimeToLive: new(int32(5)), VisibilityTimeout: new(int32(10))},
	} {
		put("put out of range", "x", bad)
	}
	put("put what is too large", strings.Repeat("x", 65537), nil)
	put("put what just fits", strings.Repeat("x", 65536), nil)
	get("get too many", 33, 30)
	get("get without hiding", 1, 0)
	props, err := q.GetProperties(ctx, nil)
	a.note("properties", err, *props.ApproximateMessagesCount)
	peeked, err := q.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(5))})
	a.note("peek", err, len(peeked.Messages))
	_, err = q.ClearMessages(ctx, nil)
	a.note("clear", err)
	_, err = q.Delete(ctx, nil)
	a.note("delete the queue", err)
	_, err = q.Delete(ctx, nil)
	a.note("delete the queue again", err)
}

func blobScript(ctx context.Context, a *account, name string) {
	upload := func(step, blob string, o *azblob.UploadBufferOptions) {
		_, err := a.blobs.UploadBuffer(ctx, name, blob, []byte("content of "+blob), o)
		a.note(step, err)
	}
	download := func(step, blob string) {
		resp, err := a.blobs.DownloadStream(ctx, name, blob, nil)
		var content bytes.Buffer
		if err == nil {
			_, err = content.ReadFrom(resp.Body)
			resp.Body.Close()
		}
		a.note(step, err, content.String())
	}
	upload("upload where there is no container", "a", nil)
	download("download where there is no container", "a")
	for range 2 {
		_, err := a.blobs.CreateContainer(ctx, name, nil)
		a.note("create", err)
	}
	download("download what is not there", "a")
	for _, blob := range []string{"i1/message-1.json.gz", "i1/message-2.json.gz", "i1/history/x", "i10/message-1.json.gz", "ü &+%/b"} {
		upload("upload", blob, nil)
		download("download", blob)
	}
	upload("upload again", "i1/message-1.json.gz", nil)
	conditional := a.blobs.ServiceClient().NewContainerClient(name).NewBlockBlobClient("i1/message-1.json.gz")
	_, err := conditional.Upload(ctx, streaming.NopCloser(strings.NewReader("x")), ifNew)
	a.note("upload if it is new", err)
	_, err = conditional.Upload(ctx, streaming.NopCloser(strings.NewReader("x")), ifMatches(`"0x1"`))
	a.note("upload if it matches", err)
	listBlobs(ctx, a, name)
	_, err = a.blobs.DeleteBlob(ctx, name, "i1/message-1.json.gz", nil)
	a.note("delete", err)
	_, err = a.blobs.DeleteBlob(ctx, name, "i1/message-1.json.gz", nil)
	a.note("delete again", err)
	_, err = a.blobs.DeleteContainer(ctx, name, nil)
	a.note("delete the container", err)
	_, err = a.blobs.DeleteContainer(ctx, name, nil)
	a.note("delete the container again", err)
}
