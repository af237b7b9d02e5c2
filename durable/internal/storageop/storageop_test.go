package storageop

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestOf_CallsOperationsAsTheReferenceDoes(t *testing.T) {
	for _, test := range []struct{ service, method, url, want string }{
		{Queue, "POST", "/q/messages", "PutMessage"},
		{Queue, "GET", "/q/messages?numofmessages=32", "GetMessages"},
		{Queue, "GET", "/q/messages?peekonly=true", "PeekMessages"},
		{Queue, "PUT", "/q/messages/id?popreceipt=x", "UpdateMessage"},
		{Queue, "DELETE", "/q/messages/id?popreceipt=x", "DeleteMessage"},
		{Queue, "GET", "/q?comp=metadata", "GetQueueMetadata"},
		{Queue, "PUT", "/q", "CreateQueue"},
		{Table, "POST", "/$batch", "EntityGroupTransaction"},
		{Table, "POST", "/Tables", "CreateTable"},
		{Table, "GET", "/HubHistory()?$filter=x", "QueryEntities"},
		{Table, "PATCH", "/HubInstances(PartitionKey='a',RowKey='')", "MergeEntity"},
		{Blob, "PUT", "/c/b?comp=lease", "RenewLease"},
		{Blob, "GET", "/c?restype=container&comp=list", "ListBlobs"},
		{Blob, "PUT", "/c/a/b", "PutBlob"},
		{Blob, "TRACE", "/c/a/b", "TRACE"},
	} {
		u, err := url.Parse("https://account" + test.url)
		if err != nil {
			t.Fatal(err)
		}
		req := &http.Request{Method: test.method, URL: u, Header: http.Header{"X-Ms-Lease-Action": {"renew"}}}
		if got := Of(test.service, req, strings.TrimPrefix(u.Path, "/")); got != test.want {
			t.Errorf("%s %s of %s is %s, want %s", test.method, test.url, test.service, got, test.want)
		}
	}
}
