package azsim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// Config configures an [Account]. The zero value answers immediately and without faults.
type Config struct {
	// Seed determines latencies and all other random choices.
	Seed uint64

	// MinLatency and MaxLatency bound the latency of each request and of each response. If
	// MaxLatency is zero, both arrive immediately.
	MinLatency, MaxLatency time.Duration

	// Delay returns an additional duration of a request. Half of it passes before the effect
	// and half after. underway is the number of requests in flight to the same service,
	// including r. Delay is called once for each request, when it is sent. Default: no delay.
	Delay func(r Request, underway int) time.Duration

	// Bandwidth returns the transfer rate of the bodies of a request and of its response, in bytes
	// per second. 0 means an immediate transfer; default: 0. It must depend only on its argument
	// and on the state that the test controls. A request whose context ends during the transfer
	// has no effect.
	Bandwidth func(Request) int

	// Loose makes the account guarantee only what the service documents. Messages are then
	// received in any order. A page of a query or a list may be short or empty and still have a
	// continuation.
	Loose bool

	// MaxBlocks is the maximum number of blocks of an append blob. Zero means the service's
	// limit of 50,000.
	MaxBlocks int

	// DeletionDelay is the time during which a deleted queue, table or container cannot be
	// created again. Default: none.
	DeletionDelay time.Duration

	// Directories makes flat lists of blobs include directories, as in accounts with a
	// hierarchical namespace.
	Directories bool

	// Forbid returns an error code if the account refuses a request with status 403, else "".
	// Default: no refusals.
	Forbid func(Request) (code string)

	// Decide returns the fault of a request. It is called once for each request, before the
	// request is sent. It must depend only on its argument and on the state that the test
	// controls. Default: no faults.
	Decide func(Request) Fault

	// RetryAfter is the Retry-After header of throttled requests, in whole seconds. Zero means
	// no header.
	RetryAfter time.Duration

	// Watch is called after each request that took effect or was refused, before the next one
	// is processed. It must not call the account.
	Watch func(View, Entry)
}

// View is an account at one instant.
type View struct{ a *Account }

// Account is a storage account in memory. Its methods are safe for concurrent use.
type Account struct {
	cfg   Config
	start time.Time

	underway sync.WaitGroup // all requests, including those whose callers have given up
	late     atomic.Int32   // requests that are slow or come from a frozen worker

	mu         sync.Mutex // protects the fields below
	lastTick   time.Time  // the time of the last write; each write has its own time, because ETags contain it
	queues     map[string]*queue
	tables     map[string]*table // by name in lower case
	containers map[string]*container
	deleted    map[string]time.Time // the times of deletions, by service and name
	asked      map[uint64]int       // the number of requests and random numbers so far, by key
	busy       map[string]int       // requests in flight, by service
	log        []Entry
	ended      bool
}

// New returns an empty account.
func New(cfg Config) *Account {
	return &Account{
		cfg:        cfg,
		start:      time.Now(),
		queues:     map[string]*queue{},
		tables:     map[string]*table{},
		containers: map[string]*container{},
		deleted:    map[string]time.Time{},
		asked:      map[uint64]int{},
		busy:       map[string]int{},
	}
}

// ConnectionString returns the connection string of the account for clients whose transport is
// a [Worker]. The account checks no credentials, so the key is arbitrary.
func (a *Account) ConnectionString() string {
	return "DefaultEndpointsProtocol=https;AccountName=sim;AccountKey=c2ltdWxhdGVk;EndpointSuffix=core.windows.net"
}

// Wait waits until no request is in flight, including those whose callers have given up.
func (a *Account) Wait() { a.underway.Wait() }

// End refuses further requests and waits until no request is in flight. Call it at the end of a bubble.
func (a *Account) End() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.Wait()
}

// LateRequests returns the number of requests in flight that are slow or come from a frozen
// worker. They may take effect after their callers have given up.
func (a *Account) LateRequests() int { return int(a.late.Load()) }

// tick returns the time of a write, which differs from the time of any other write. a.mu is
// locked.
func (a *Account) tick() time.Time {
	now := time.Now().UTC().Truncate(100 * time.Nanosecond)
	if !now.After(a.lastTick) {
		now = a.lastTick.Add(100 * time.Nanosecond)
	}
	a.lastTick = now
	return now
}

// Message is a stored queue message.
type Message struct {
	ID           string
	Text         string
	VisibleAt    time.Time
	DequeueCount int
}

// Queues returns the names of all queues in order.
func (a *Account) Queues() []string { return withView(a, View.Queues) }

// Queues is like [Account.Queues].
func (v View) Queues() []string { return slices.Sorted(maps.Keys(v.a.queues)) }

// withView calls what with a view of the account.
func withView[T any](a *Account, what func(View) T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	return what(View{a})
}

// Messages returns the messages of a queue, including invisible ones, in the order of
// visibility.
func (a *Account) Messages(queueName string) []Message {
	return withView(a, func(v View) []Message { return v.Messages(queueName) })
}

// Messages is like [Account.Messages].
func (v View) Messages(queueName string) []Message {
	q := v.a.queues[queueName]
	if q == nil {
		return nil
	}
	var all []Message
	for _, m := range q.messages {
		all = append(all, Message{ID: m.id, Text: m.text, VisibleAt: m.visibleAt, DequeueCount: m.dequeueCount})
	}
	slices.SortStableFunc(all, func(x, y Message) int { return x.VisibleAt.Compare(y.VisibleAt) })
	return all
}

// Put enqueues a message with the given dequeue count. It returns false if the queue does not
// exist.
func (a *Account) Put(queueName, text string, dequeueCount int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queues[queueName]
	if q == nil {
		return false
	}
	m := &message{text: text, dequeueCount: dequeueCount, insertedAt: time.Now(), visibleAt: time.Now(), sent: a.tick()}
	roll := uint64(m.sent.UnixNano())
	m.id = fmt.Sprintf("m-%016x", mix(roll, 5))
	m.changeReceipt(roll)
	q.messages = append(q.messages, m)
	return true
}

// Tables returns the names of all tables in order.
func (a *Account) Tables() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, t := range a.tables {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return names
}

// Row is an entity of a table, with its columns as JSON values.
type Row struct {
	PartitionKey, RowKey string
	Columns              map[string]string
}

// Text returns the value of a text column, or "" if the row lacks it.
func (r Row) Text(column string) string {
	return jsonText(r.Columns[column])
}

// Rows returns the entities of a table in the order of their keys.
func (a *Account) Rows(tableName string) []Row {
	return withView(a, func(v View) []Row { return v.Rows(tableName) })
}

// Rows is like [Account.Rows].
func (v View) Rows(tableName string) []Row {
	t := v.a.tables[foldName(tableName)]
	if t == nil {
		return nil
	}
	var all []Row
	for _, e := range t.sorted() {
		all = append(all, e.row())
	}
	return all
}

// Row returns the row with the given keys; ok is false if it does not exist.
func (a *Account) Row(tableName, partitionKey, rowKey string) (row Row, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tables[foldName(tableName)]
	if t == nil {
		return Row{}, false
	}
	e := t.get(partitionKey, rowKey)
	if e == nil {
		return Row{}, false
	}
	return e.row(), true
}

// HasBlob reports whether a blob exists.
func (v View) HasBlob(containerName, name string) bool {
	c := v.a.containers[containerName]
	return c != nil && c.blobs[name] != nil
}

// Blob is a stored blob.
type Blob struct {
	Container, Name string
	Content         []byte
	LeaseID         string // of the active lease, or ""
	Metadata        http.Header
}

// Blobs returns the blobs of all containers in the order of their names.
func (a *Account) Blobs() []Blob {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Blob
	now := time.Now()
	for name, c := range a.containers {
		for _, b := range c.blobs {
			id := ""
			if b.lease.state(now) == leased {
				id = b.lease.id
			}
			all = append(all, Blob{Container: name, Name: b.name, Content: slices.Clone(b.content), LeaseID: id, Metadata: b.metadata.Clone()})
		}
	}
	slices.SortFunc(all, func(x, y Blob) int {
		return cmp.Or(cmp.Compare(x.Container, y.Container), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// Restore replaces each blob whose name contains text by a copy of itself, as tools do that
// copy or undelete a container. A copy has the same content and metadata, a new ETag and no
// lease.
func (a *Account) Restore(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.containers)) {
		blobs := a.containers[name].blobs
		for _, b := range slices.Sorted(maps.Keys(blobs)) {
			if strings.Contains(b, text) {
				blobs[b].lease = lease{}
				blobs[b].stamp(a.tick())
			}
		}
	}
}

// Vanish removes blobs of a container without a request, like a lifecycle rule, and returns
// their number. It removes the blobs for which is(name) returns true.
func (a *Account) Vanish(containerName string, is func(name string) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containers[containerName]
	before := len(c.blobs)
	maps.DeleteFunc(c.blobs, func(name string, _ *blob) bool { return is(name) })
	return before - len(c.blobs)
}

// Shorten truncates an append blob, as a failover of the account to another region can. It
// returns false if the blob is not longer than size.
func (a *Account) Shorten(containerName, blobName string, size int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.containers[containerName].blobs[blobName]
	if b == nil || len(b.content) <= size {
		return false
	}
	b.content = b.content[:size]
	b.stamp(a.tick())
	return true
}

// Chance returns the source of a worker's random numbers in [0, 1), such as for retry delays.
// The n-th number for a purpose depends only on the seed, the worker and the purpose.
func (a *Account) Chance(worker string) func(purpose string) float64 {
	return func(purpose string) float64 {
		return fraction(a.roll("chance", worker, withoutNoise(purpose)))
	}
}

// roll returns the next random number for a purpose.
func (a *Account) roll(purpose ...string) uint64 {
	key := hashOf(purpose...)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.asked[key]
	a.asked[key]++
	return mix(a.cfg.Seed, key, uint64(n))
}

// Turns returns a function that orders a worker's concurrent callers. Each call waits for a
// time that depends on the seed, the worker, the name and the content. Callers with the same
// name and content wait for different times, because the runtime fires timers of the same
// instant in random order.
func (a *Account) Turns(worker string) func(ctx context.Context, name string, content io.Reader) {
	return func(ctx context.Context, name string, content io.Reader) {
		if ctx.Err() != nil {
			return
		}
		if text, err := url.PathUnescape(name); err == nil {
			name = text // withoutNoise does not recognize noise in escaped text
		}
		sum := uint64(0)
		if s, ok := content.(io.ReadSeeker); ok {
			body, _ := io.ReadAll(s) // content is in memory
			_, _ = s.Seek(0, io.SeekStart)
			sum = fingerprint(body)
		}
		pause.For(ctx, time.Duration(a.roll("turn", worker, withoutNoise(name), fmt.Sprint(sum))%uint64(10*time.Microsecond)))
	}
}

// latency returns the latency of a request or a response.
func (a *Account) latency(roll uint64) time.Duration {
	if a.cfg.MaxLatency <= 0 {
		return 0
	}
	span := a.cfg.MaxLatency - a.cfg.MinLatency
	return a.cfg.MinLatency + time.Duration(fraction(roll)*float64(span)) + 1
}

// record appends to the log. a.mu is locked.
func (a *Account) record(x *exchange, answer *reply) {
	e := Entry{Request: *x.r, SentAt: x.asked.Sub(a.start), AppliedAt: time.Since(a.start), Fault: x.fault}
	if answer != nil {
		e.Status, e.Code, e.Answer = answer.status, answer.code, answer.body
	}
	a.log = append(a.log, e)
	if a.cfg.Watch != nil {
		a.cfg.Watch(View{a}, e)
	}
}

// recordUndelivered records a request that was not delivered.
func (a *Account) recordUndelivered(x *exchange, answer *reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.at, x.id = time.Now(), requestID(x.r.Roll)
	a.record(x, answer)
}

// Log returns the requests so far in the order of their effects.
func (a *Account) Log() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

// Trace returns the log as text, one request per line.
func (a *Account) Trace() string {
	var b strings.Builder
	for _, e := range a.Log() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// apply applies a change to a table. It returns the resulting entity, nil after a deletion, and
// a function that undoes the change.
func (a *Account) apply(t *table, op *operation) (after *entity, undo func(), failure *reply) {
	wanted := op.entity
	old := t.get(wanted.partitionKey, wanted.rowKey)
	restore := func() {
		if old != nil {
			t.put(old)
		} else {
			t.remove(wanted)
		}
	}
	if op.method == http.MethodPost {
		if old != nil {
			return nil, nil, refuseTable(http.StatusConflict, "EntityAlreadyExists", "The specified entity already exists.")
		}
	} else if failure := op.condition(old); failure != nil {
		return nil, nil, failure
	}
	switch op.method {
	case http.MethodDelete:
		t.remove(old)
		return nil, restore, nil
	case http.MethodPatch:
		if old != nil {
			merged := &entity{partitionKey: old.partitionKey, rowKey: old.rowKey}
			merged.columns = append(merged.columns, old.columns...)
			for _, c := range wanted.columns {
				merged.set(c)
			}
			wanted = merged
		}
		if failure := wanted.check(); failure != nil {
			return nil, nil, failure
		}
	}
	wanted.stamp(a.tick())
	t.put(wanted)
	return wanted, restore, nil
}

// Worker returns a worker of the account. Latencies depend on the name. A killed worker can be
// followed by another one with the same name.
func (a *Account) Worker(name string) *Worker {
	return &Worker{account: a, name: name, dead: make(chan struct{})}
}

// enter counts a request in flight. It returns false after [Account.End].
func (a *Account) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.underway.Add(1)
	}
	return !a.ended
}

// admit determines the random number, the fault and the additional delay of a request.
func (a *Account) admit(r *Request) (fault Fault, delay time.Duration) {
	r.key = hashOf(r.Worker, r.method, withoutNoise(r.Path), withoutNoise(r.queryText()), r.header.Get("x-ms-lease-action"))
	if r.Operation != "AppendBlock" { // its checksums and lengths depend on GUIDs and times
		r.key = mix(r.key, fingerprint(r.Body))
	}
	a.mu.Lock()
	n := a.asked[r.key]
	a.asked[r.key]++
	a.busy[r.Service]++
	underway := a.busy[r.Service]
	a.mu.Unlock()
	r.Roll = mix(a.cfg.Seed, r.key, uint64(n))
	if a.cfg.Delay != nil {
		delay = a.cfg.Delay(*r, underway)
	}
	if a.cfg.Decide != nil {
		fault = a.cfg.Decide(*r)
	}
	return fault, delay
}

// leave records that a request was answered.
func (a *Account) leave(r *Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy[r.Service]--
}

// serve applies a request.
func (a *Account) serve(x *exchange) *reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.at = time.Now()
	x.id = requestID(x.r.Roll)
	r := x.r
	var answer *reply
	if code := a.forbid(r); code != "" {
		answer = refusal(r.Service, http.StatusForbidden, code, "This request is not authorized to perform this operation.")
		a.record(x, answer)
		return answer
	}
	switch r.Service {
	case QueueService:
		answer = queueService{a}.serveQueue(r)
	case TableService:
		answer = tableService{a}.serveTable(r)
	case BlobService:
		answer = blobService{a}.serveBlob(r)
	default:
		answer = refusal(r.Service, http.StatusBadRequest, "InvalidUri", "the account has no such service: "+r.host)
	}
	switch r.Operation {
	case "DeleteQueue", "DeleteTable", "DeleteContainer":
		if answer.status < http.StatusBadRequest {
			a.deleted[r.Service+"/"+strings.ToLower(r.Target)] = x.at
		}
	}
	a.record(x, answer)
	return answer
}

// forbid returns the error code of a forbidden request, else "".
func (a *Account) forbid(r *Request) string {
	if a.cfg.Forbid == nil {
		return ""
	}
	return a.cfg.Forbid(*r)
}

// beingDeleted returns a refusal if the queue, table or container is still being deleted, else
// nil.
func (a *Account) beingDeleted(service, name string) *reply {
	at, was := a.deleted[service+"/"+strings.ToLower(name)]
	if !was || time.Since(at) >= a.cfg.DeletionDelay {
		return nil
	}
	what := map[string]string{QueueService: "Queue", TableService: "Table", BlobService: "Container"}[service]
	return refusal(service, http.StatusConflict, what+"BeingDeleted", "The specified "+strings.ToLower(what)+" is being deleted.")
}

// Snapshot creates a snapshot of a blob; the blob can then be deleted only together with its
// snapshots. It returns false if the blob does not exist.
func (a *Account) Snapshot(containerName, blobName string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containers[containerName]
	if c == nil || c.blobs[blobName] == nil {
		return false
	}
	c.blobs[blobName].snapshots++
	return true
}
