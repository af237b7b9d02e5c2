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

// A Request is what a worker asks the account for.
type Request struct {
	Worker  string
	Service string
	// Operation is the name that the documentation of the service gives it, such
	// as PutMessage.
	Operation string
	// Target is the queue, table or container.
	Target string
	// Path is the whole path within the account.
	Path string
	// Body is what is sent, in the clock of the account.
	Body []byte
	// Number counts the worker's requests, from 1, in the order in which they
	// were made.
	Number int
	// Roll is a random number that depends on the seed, the worker, what is asked
	// for and how often it was asked for before.
	Roll uint64

	method string
	key    uint64 // what is asked for, as a number
	query  url.Values
	header http.Header
	host   string // of the service, with scheme
}

// newRequest reads a request off the wire. Addresses are those of the service,
// https://account.queue.core.windows.net/…, or have the service as the host and
// the account in the path.
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
	for name, values := range raw.Header { // the clients write some names in lower case
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

// Header returns a header of the request, "" if it has none of the name.
func (r *Request) Header(name string) string { return r.header.Get(name) }

// rest returns what follows the target in the path.
func (r *Request) rest() string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	return rest
}

// queryText returns the query as text without escapes.
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

// batchTarget finds the table of a transaction in its first operation.
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

// lastSegment returns the part of a path that names an entity or a table. Keys
// may have slashes in them.
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

// choose returns the value that follows key, or key itself.
func choose(key string, pairs ...string) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == key {
			return pairs[i+1]
		}
	}
	return key
}

// seconds returns a query parameter that counts seconds, the given value if it
// is not there; ok is false if it is not within its bounds.
func (r *Request) seconds(name string, otherwise, lo, hi int) (n int, ok bool) {
	text := r.query.Get(name)
	if text == "" {
		return otherwise, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && lo <= n && n <= hi
}

// move moves all times in what is asked by d.
func (r *Request) move(d time.Duration) {
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
