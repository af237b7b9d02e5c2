// Package storageop determines the storage operation of a request. It uses the names of
// Microsoft's reference and of the metrics of storage accounts: PutMessage, GetMessages,
// InsertEntity, EntityGroupTransaction. It knows the operations that task hubs use. For others
// it returns the HTTP method.
package storageop

import (
	"net/http"
	"strings"
)

// The services of a storage account.
const (
	Queue = "queue"
	Table = "table"
	Blob  = "blob"
)

// Of returns the operation of a request to a service. path is the request's path without the
// account and without a leading slash.
func Of(service string, req *http.Request, path string) string {
	first, rest, _ := strings.Cut(path, "/")
	switch service {
	case Queue:
		return ofQueue(req, rest)
	case Table:
		return ofTable(req, first)
	default:
		return ofBlob(req, rest)
	}
}

func ofQueue(req *http.Request, rest string) string {
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

func ofTable(req *http.Request, path string) string {
	table, _, _ := strings.Cut(path, "(")
	switch table {
	case "$batch":
		return "EntityGroupTransaction"
	case "Tables":
		return choose(req.Method, "POST", "CreateTable", "DELETE", "DeleteTable", "GET", "QueryTables")
	}
	// Some clients send MERGE as PATCH.
	return choose(req.Method, "GET", "QueryEntities", "POST", "InsertEntity", "PUT", "UpdateEntity",
		"PATCH", "MergeEntity", "MERGE", "MergeEntity", "DELETE", "DeleteEntity")
}

func ofBlob(req *http.Request, rest string) string {
	query := req.URL.Query()
	switch {
	case query.Get("comp") == "lease":
		verb := strings.ToLower(req.Header.Get("x-ms-lease-action"))
		return strings.ToUpper(verb[:min(1, len(verb))]) + verb[min(1, len(verb)):] + "Lease"
	case query.Get("comp") == "appendblock":
		return "AppendBlock"
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

// choose returns the value that follows key in pairs, or key itself.
func choose(key string, pairs ...string) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == key {
			return pairs[i+1]
		}
	}
	return key
}
