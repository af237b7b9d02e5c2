package azsim

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The services of an account.
const (
	QueueService = "queue"
	TableService = "table"
	BlobService  = "blob"
)

// Request is a worker's request to the account.
type Request struct {
	Worker  string
	Service string
	// Operation is the operation's name in the documentation of the service, such as
	// PutMessage.
	Operation string
	// Target is the queue, table or container.
	Target string
	// Path is the complete path within the account.
	Path string
	// Body is the request's body, with times of the account's clock.
	Body []byte
	// Number is the number of the worker's request, counted from 1.
	Number int
	// Roll is a random number. It depends on the seed, the worker, the request and the number
	// of identical requests before it.
	Roll uint64

	method string
	key    uint64 // a hash of the request
	query  url.Values
	header http.Header
	host   string // of the service, with the scheme
}

// newRequest parses an HTTP request. The host is the service's, such as
// account.queue.core.windows.net, or names only the service; the account is then in the path.
func newRequest(worker string, raw *http.Request) (*Request, error) {
	var body []byte
	if raw.Body != nil {
		var err error
		body, err = io.ReadAll(raw.Body)
		raw.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	r := &Request{
		Worker: worker, Body: body, method: raw.Method, query: raw.URL.Query(), header: http.Header{},
		Path: raw.URL.Path, host: raw.URL.Scheme + "://" + raw.URL.Host,
	}
	for name, values := range raw.Header { // clients write some names in lower case
		r.header[http.CanonicalHeaderKey(name)] = values
	}
	for label := range strings.SplitSeq(raw.URL.Hostname(), ".") {
		if label == QueueService || label == TableService || label == BlobService {
			r.Service = label
		}
	}
	path := strings.TrimPrefix(raw.URL.Path, "/")
	target, rest, _ := strings.Cut(path, "/")
	switch r.Service {
	case QueueService:
		r.Target = target
		r.Operation = queueOperation(r, rest)
	case TableService:
		r.Target, _, _ = strings.Cut(target, "(")
		r.Operation = tableOperation(r, target)
	case BlobService:
		r.Target = target
		r.Operation = blobOperation(r, rest)
	}
	return r, nil
}

// Header returns a header of the request, or "".
func (r *Request) Header(name string) string { return r.header.Get(name) }

// rest returns the part of the path after the target.
func (r *Request) rest() string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	return rest
}

// queryText returns the query without escapes.
func (r *Request) queryText() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.query)) {
		b.WriteString(name + "=" + strings.Join(r.query[name], ",") + "&")
	}
	return b.String()
}

func queueOperation(r *Request, rest string) string {
	switch {
	case r.Target == "":
		return "ListQueues"
	case rest == "" && r.query.Get("comp") == "metadata":
		return choose(r.method, "GET", "GetQueueMetadata", "HEAD", "GetQueueMetadata", "PUT", "SetQueueMetadata")
	case rest == "":
		return choose(r.method, "PUT", "CreateQueue", "DELETE", "DeleteQueue")
	case rest == "messages" && r.query.Get("peekonly") == "true":
		return "PeekMessages"
	case rest == "messages":
		return choose(r.method, "POST", "PutMessage", "GET", "GetMessages", "DELETE", "ClearMessages")
	}
	return choose(r.method, "PUT", "UpdateMessage", "DELETE", "DeleteMessage")
}

func tableOperation(r *Request, path string) string {
	_, key, _ := strings.Cut(path, "(")
	switch {
	case r.Target == "$batch":
		r.Target = batchTarget(r.Body)
		return "EntityGroupTransaction"
	case r.Target == "Tables" && r.method == http.MethodGet:
		return "QueryTables"
	case r.Target == "Tables":
		r.Target = strings.Trim(key, "')")
		return choose(r.method, "POST", "CreateTable", "DELETE", "DeleteTable")
	case r.method == http.MethodGet && strings.Trim(key, ")") != "":
		return "GetEntity"
	}
	return choose(r.method, "GET", "QueryEntities", "POST", "InsertEntity", "PUT", "UpdateEntity",
		"PATCH", "MergeEntity", "MERGE", "MergeEntity", "DELETE", "DeleteEntity")
}

// batchTarget returns the table of the first operation of a transaction.
func batchTarget(body []byte) string {
	for line := range bytes.Lines(body) {
		text, found := strings.CutSuffix(strings.TrimRight(string(line), "\r\n"), " HTTP/1.1")
		if !found {
			continue
		}
		_, address, _ := strings.Cut(text, " ")
		if u, err := url.Parse(address); err == nil {
			table, _, _ := strings.Cut(lastSegment(u.Path), "(")
			return table
		}
	}
	return ""
}

// lastSegment returns the part of a path that names an entity or a table. Keys may contain
// slashes.
func lastSegment(path string) string {
	head, keys, found := strings.Cut(path, "(")
	head = head[strings.LastIndex(head, "/")+1:]
	if found {
		return head + "(" + keys
	}
	return head
}

func blobOperation(r *Request, rest string) string {
	comp, restype := r.query.Get("comp"), r.query.Get("restype")
	switch {
	case comp == "lease":
		verb := strings.ToLower(r.header.Get("x-ms-lease-action"))
		return strings.ToUpper(verb[:min(1, len(verb))]) + verb[min(1, len(verb)):] + "Lease"
	case comp == "appendblock":
		return "AppendBlock"
	case comp == "list" && restype == "container":
		return "ListBlobs"
	case comp == "list":
		return "ListContainers"
	case rest == "" && comp == "metadata":
		return "SetContainerMetadata"
	case rest == "":
		return choose(r.method, "PUT", "CreateContainer", "DELETE", "DeleteContainer", "GET", "GetContainerProperties", "HEAD", "GetContainerProperties")
	case comp == "metadata":
		return "SetBlobMetadata"
	case r.method == http.MethodPut && r.header.Get("x-ms-blob-type") == appendBlob:
		return "CreateAppendBlob"
	}
	return choose(r.method, "PUT", "PutBlob", "GET", "GetBlob", "HEAD", "GetBlobProperties", "DELETE", "DeleteBlob")
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

// seconds returns a numeric query parameter, or otherwise if it is missing; ok is false if it
// is out of bounds.
func (r *Request) seconds(name string, otherwise, lo, hi int) (n int, ok bool) {
	text := r.query.Get(name)
	if text == "" {
		return otherwise, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && lo <= n && n <= hi
}

// shift shifts all times in the request by d.
func (r *Request) shift(d time.Duration) {
	if d == 0 {
		return
	}
	r.Body = shiftTimes(r.Body, d)
	r.Path = string(shiftTimes([]byte(r.Path), d))
	for _, values := range r.query {
		for i := range values {
			values[i] = string(shiftTimes([]byte(values[i]), d))
		}
	}
}
