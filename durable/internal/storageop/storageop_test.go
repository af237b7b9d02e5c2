package storageop

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestOf_ReturnsTheNamesOfTheReference(t *testing.T) {
	for _, test := range []struct{ service, method, url, want string }{
		{Queue, "GET", "/?comp=list", "ListQueues"},
		{Queue, "PUT", "/q", "CreateQueue"},
		{Queue, "DELETE", "/q", "DeleteQueue"},
		{Queue, "GET", "/q?comp=metadata", "GetQueueMetadata"},
		{Queue, "HEAD", "/q?comp=metadata", "GetQueueMetadata"},
		{Queue, "PUT", "/q?comp=metadata", "SetQueueMetadata"},
		{Queue, "POST", "/q/messages", "PutMessage"},
		{Queue, "GET", "/q/messages?numofmessages=32", "GetMessages"},
		{Queue, "GET", "/q/messages?peekonly=true", "PeekMessages"},
		{Queue, "DELETE", "/q/messages", "ClearMessages"},
		{Queue, "PUT", "/q/messages/id?popreceipt=x", "UpdateMessage"},
		{Queue, "DELETE", "/q/messages/id?popreceipt=x", "DeleteMessage"},
		{Table, "POST", "/$batch", "EntityGroupTransaction"},
		{Table, "POST", "/Tables", "CreateTable"},
		{Table, "GET", "/Tables", "QueryTables"},
		{Table, "DELETE", "/Tables('Hub')", "DeleteTable"},
		{Table, "GET", "/HubHistory()?$filter=x", "QueryEntities"},
		{Table, "POST", "/HubInstances", "InsertEntity"},
		{Table, "PUT", "/HubInstances(PartitionKey='a',RowKey='')", "UpdateEntity"},
		{Table, "PATCH", "/HubInstances(PartitionKey='a',RowKey='')", "MergeEntity"},
		{Table, "MERGE", "/HubInstances(PartitionKey='a',RowKey='')", "MergeEntity"},
		{Table, "DELETE", "/HubInstances(PartitionKey='a',RowKey='')", "DeleteEntity"},
		{Blob, "GET", "/?comp=list", "ListContainers"},
		{Blob, "PUT", "/c?restype=container", "CreateContainer"},
		{Blob, "GET", "/c?restype=container", "GetContainerProperties"},
		{Blob, "HEAD", "/c?restype=container", "GetContainerProperties"},
		{Blob, "DELETE", "/c?restype=container", "DeleteContainer"},
		{Blob, "GET", "/c?restype=container&comp=list", "ListBlobs"},
		{Blob, "PUT", "/c/b?comp=lease", "RenewLease"},
		{Blob, "PUT", "/c/b?comp=appendblock", "AppendBlock"},
		{Blob, "PUT", "/c/b?comp=metadata", "SetBlobMetadata"},
		{Blob, "PUT", "/c/a/b", "PutBlob"},
		{Blob, "GET", "/c/a/b", "GetBlob"},
		{Blob, "HEAD", "/c/a/b", "GetBlobProperties"},
		{Blob, "DELETE", "/c/a/b", "DeleteBlob"},
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
