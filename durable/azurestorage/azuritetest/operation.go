package azuritetest

import (
	"io"
	"net/http"
	"strings"
)

// call reads service, operation and target off a request. It knows the
// operations that task hubs use; another is named by its method.
func (c *Counter) call(req *http.Request) Call {
	service, pathStyle := c.services[req.URL.Host]
	if !pathStyle { // https://account.queue.core.windows.net
		if labels := strings.Split(req.URL.Hostname(), "."); len(labels) > 1 {
			service = labels[1]
		}
	}
	path := strings.TrimPrefix(req.URL.Path, "/")
	if pathStyle {
		_, path, _ = strings.Cut(path, "/") // the account
	}
	target, rest, _ := strings.Cut(path, "/")
	switch service {
	case "queue":
		return Call{service, queueOperation(req, rest), target}
	case "table":
		name, target := tableOperation(req, target)
		return Call{service, name, target}
	default:
		return Call{service, blobOperation(req, rest), target}
	}
}

func queueOperation(req *http.Request, rest string) string {
	query := req.URL.Query()
	switch {
	case rest == "" && query.Get("comp") == "list":
		return "ListQueues"
	case rest == "" && query.Get("comp") == "metadata":
		return choose(req.Method, "GET", "GetQueueMetadata", "HEAD", "GetQueueMetadata", "PUT", "SetQueueMetadata")
	case rest == "":
		return choose(req.Method, "PUT", "CreateQueue", "DELETE", "DeleteQueue")
	case rest == "messages" && query.Get("peekonly") == "true":
		return "PeekMessages"
	case rest == "messages":
		return choose(req.Method, "POST", "PutMessage", "GET", "GetMessages", "DELETE", "ClearMessages")
	}
	return choose(req.Method, "PUT", "UpdateMessage", "DELETE", "DeleteMessage")
}

func tableOperation(req *http.Request, path string) (name, table string) {
	table, key, _ := strings.Cut(path, "(")
	switch {
	case table == "$batch":
		return "EntityGroupTransaction", batchTable(req)
	case table == "Tables":
		return choose(req.Method, "POST", "CreateTable", "DELETE", "DeleteTable", "GET", "QueryTables"), strings.Trim(key, "')")
	}
	// "MERGE" is sent as such or, by some clients, as PATCH.
	return choose(req.Method, "GET", "QueryEntities", "POST", "InsertEntity", "PUT", "UpdateEntity",
		"PATCH", "MergeEntity", "MERGE", "MergeEntity", "DELETE", "DeleteEntity"), table
}

// batchTable finds the one table of a transaction in its first inner request.
// The SDKs' bodies can be rewound, for their retries; another is left alone.
func batchTable(req *http.Request) string {
	body, ok := req.Body.(io.ReadSeeker)
	if !ok {
		return ""
	}
	head := make([]byte, 2048)
	n, _ := io.ReadFull(body, head)
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return ""
	}
	for line := range strings.Lines(string(head[:n])) {
		if _, url, found := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), " HTTP/1.1"), " http"); found {
			table, _, _ := strings.Cut(url[strings.LastIndex(url, "/")+1:], "(")
			return table
		}
	}
	return ""
}

func blobOperation(req *http.Request, rest string) string {
	query := req.URL.Query()
	switch {
	case query.Get("comp") == "lease":
		verb := strings.ToLower(req.Header.Get("x-ms-lease-action"))
		return strings.ToUpper(verb[:min(1, len(verb))]) + verb[min(1, len(verb)):] + "Lease"
	case query.Get("comp") == "list" && query.Get("restype") == "container":
		return "ListBlobs"
	case query.Get("comp") == "list":
		return "ListContainers"
	case rest == "":
		return choose(req.Method, "PUT", "CreateContainer", "DELETE", "DeleteContainer", "GET", "GetContainerProperties", "HEAD", "GetContainerProperties")
	case query.Get("comp") == "metadata":
		return "SetBlobMetadata"
	}
	return choose(req.Method, "PUT", "PutBlob", "GET", "GetBlob", "HEAD", "GetBlobProperties", "DELETE", "DeleteBlob")
}

// choose returns the value that follows key, or key itself.
func choose(key string, pairs ...string) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == key {
			return pairs[i+1]
		}
	}
	return key
}
