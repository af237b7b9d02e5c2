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

// Config says how an [Account] behaves. The zero value answers at once, without
// faults.
type Config struct {
	// Seed decides about latencies and about what is left to chance.
	Seed uint64

	// MinLatency and MaxLatency bound how long a request is on its way, and again
	// how long its answer is. If MaxLatency is zero there is no latency.
	MinLatency, MaxLatency time.Duration

	// Delay returns how much longer a request takes, half of it before its effect
	// and half after, when so many requests to its service are under way with it;
	// nil means that none does. It is called once for each request, when it is sent.
	Delay func(r Request, underway int) time.Duration

	// Bandwidth returns how many bytes of an answer's body arrive per second; 0, or a nil
	// function, means that all arrive at once. It must depend on nothing but its argument
	// and what the test controls.
	Bandwidth func(Request) int

	// Loose makes the account promise no more than the service's documentation
	// does: messages are not received in the order in which they were sent, and
	// pages of a query or a list may be short, or empty, and yet have a continuation.
	Loose bool

	// MaxBlocks is how many blocks an append blob can have; zero means 50,000, as
	// the service has it.
	MaxBlocks int

	// DeletionDelay is the time during which a deleted queue, table or container cannot be
	// created again. Default: none.
	DeletionDelay time.Duration

	// Directories makes flat lists of blobs show the directories that the blobs are in, as
	// accounts with a hierarchical namespace do.
	Directories bool

	// Forbid returns the error code of a request that the account refuses with the status
	// 403, or an empty text. Default: the account refuses none.
	Forbid func(Request) (code string)

	// Decide chooses what goes wrong with a request; nil means that nothing does.
	// It is called once for each request, before it is sent. It must depend on
	// nothing but its argument and what the test controls.
	Decide func(Request) Fault

	// RetryAfter is the Retry-After header of throttled requests, in whole seconds. Zero
	// means no header.
	RetryAfter time.Duration

	// Watch is told of each request that took effect or was refused, before the next
	// one is looked at; nil means that nobody is. It must not call the account.
	Watch func(View, Entry)
}

// A View is an account as it is at one instant.
type View struct{ a *Account }

// An Account is a storage account in memory. Its methods may be called from
// several goroutines at once.
type Account struct {
	cfg   Config
	start time.Time

	underway sync.WaitGroup // requests, also those that nobody waits for any more
	late     atomic.Int32   // requests that are slow or of a frozen worker

	mu         sync.Mutex // protects the following
	lastTick   time.Time  // of the last write, since ETags are made of it
	queues     map[string]*queue
	tables     map[string]*table // by their names in lower case
	containers map[string]*container
	deleted    map[string]time.Time // when queues, tables and containers were deleted, by service and name
	asked      map[uint64]int       // how often each thing was asked for
	busy       map[string]int       // requests under way, by service
	log        []Entry
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

// ConnectionString leads to the account if the transport is one of its workers.
// The key is of no meaning: nothing is authenticated.
func (a *Account) ConnectionString() string {
	return "DefaultEndpointsProtocol=https;AccountName=sim;AccountKey=c2ltdWxhdGVk;EndpointSuffix=core.windows.net"
}

// Wait returns when no request is under way, also none that nobody waits for any
// more. A bubble must not end before.
func (a *Account) Wait() { a.underway.Wait() }

// Late returns how many requests are on their way that are slow or of a worker
// that is frozen. They may take effect when nobody expects it any more.
func (a *Account) Late() int { return int(a.late.Load()) }

// tick returns the time of a write, which no other write has. a.mu is held.
func (a *Account) tick() time.Time {
	now := time.Now().UTC().Truncate(100 * time.Nanosecond)
	if !now.After(a.lastTick) {
		now = a.lastTick.Add(100 * time.Nanosecond)
	}
	a.lastTick = now
	return now
}

// A Message is a queue message as it is stored.
type Message struct {
	ID           string
	Text         string
	VisibleAt    time.Time
	DequeueCount int
}

// Queues returns the names of all queues, in order.
func (a *Account) Queues() []string { return look(a, View.Queues) }

// Queues is [Account.Queues].
func (v View) Queues() []string { return slices.Sorted(maps.Keys(v.a.queues)) }

// look returns what an account has.
func look[T any](a *Account, what func(View) T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	return what(View{a})
}

// Messages returns what is in a queue, invisible messages too, in the order in
// which they become visible.
func (a *Account) Messages(queueName string) []Message {
	return look(a, func(v View) []Message { return v.Messages(queueName) })
}

// Messages is [Account.Messages].
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

// Put puts a message into a queue as if it had been received so often before, and
// reports whether there is such a queue.
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

// Tables returns the names of all tables, in order.
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

// A Row is an entity of a table with its columns as JSON values.
type Row struct {
	PartitionKey, RowKey string
	Columns              map[string]string
}

// Text returns a column of text, empty if there is none.
func (r Row) Text(column string) string {
	return jsonText(r.Columns[column])
}

// Rows returns what is in a table, in the order of its keys.
func (a *Account) Rows(tableName string) []Row {
	return look(a, func(v View) []Row { return v.Rows(tableName) })
}

// Rows is [Account.Rows].
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

// Row returns the row with the keys; ok is false if there is none.
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

// HasBlob reports whether there is a blob.
func (v View) HasBlob(containerName, name string) bool {
	c := v.a.containers[containerName]
	return c != nil && c.blobs[name] != nil
}

// A Blob is a blob as it is stored.
type Blob struct {
	Container, Name string
	Content         []byte
	LeaseID         string // of the lease that is active now, if any
	Metadata        http.Header
}

// Blobs returns the blobs of all containers, in the order of their names.
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

// Restore replaces blobs by copies of themselves, as tools do that copy or undelete a
// container: content and metadata are the same, ETags are new, and no copy has a lease. It
// replaces the blobs whose names contain a text.
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

// Vanish removes blobs of a container without a request, as a lifecycle rule does, and returns
// their number. is selects them by their names.
func (a *Account) Vanish(containerName string, is func(name string) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containers[containerName]
	before := len(c.blobs)
	maps.DeleteFunc(c.blobs, func(name string, _ *blob) bool { return is(name) })
	return before - len(c.blobs)
}

// Shorten cuts off the end of an append blob, as a failover of the account to another region can. It
// reports whether the blob was longer.
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

// Chance returns a source of numbers in [0, 1) for what a worker leaves to
// chance, such as how long it waits before it tries again. The n-th number for a
// purpose depends on the seed, the worker and the purpose only.
func (a *Account) Chance(worker string) func(purpose string) float64 {
	return func(purpose string) float64 {
		return fraction(a.roll("chance", worker, withoutNoise(purpose)))
	}
}

// roll returns the next number of those that the seed assigns to a purpose.
func (a *Account) roll(purpose ...string) uint64 {
	key := hashOf(purpose...)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.asked[key]
	a.asked[key]++
	return mix(a.cfg.Seed, key, uint64(n))
}

// Turns returns what a worker's callers at one instant call, to come one after the other. Their
// order depends on the seed, the worker, and the names and contents. Callers that have these in
// common get different times, since the runtime fires timers of one instant in a random order.
func (a *Account) Turns(worker string) func(ctx context.Context, name string, content io.Reader) {
	return func(ctx context.Context, name string, content io.Reader) {
		if ctx.Err() != nil {
			return
		}
		if text, err := url.PathUnescape(name); err == nil {
			name = text // noise between escapes is not recognized
		}
		sum := uint64(0)
		if s, ok := content.(io.ReadSeeker); ok {
			body, _ := io.ReadAll(s) // in memory
			_, _ = s.Seek(0, io.SeekStart)
			sum = fingerprint(body)
		}
		pause.For(ctx, time.Duration(a.roll("turn", worker, withoutNoise(name), fmt.Sprint(sum))%uint64(10*time.Microsecond)))
	}
}

// latency returns how long a request, or its answer, is on its way.
func (a *Account) latency(roll uint64) time.Duration {
	if a.cfg.MaxLatency <= 0 {
		return 0
	}
	span := a.cfg.MaxLatency - a.cfg.MinLatency
	return a.cfg.MinLatency + time.Duration(fraction(roll)*float64(span)) + 1
}

// record appends to the log. a.mu is held.
func (a *Account) record(x *exchange, answer *reply) {
	e := Entry{Request: *x.r, Asked: x.asked.Sub(a.start), At: time.Since(a.start), Fault: x.fault}
	if answer != nil {
		e.Status, e.Code, e.Answer = answer.status, answer.code, answer.body
	}
	a.log = append(a.log, e)
	if a.cfg.Watch != nil {
		a.cfg.Watch(View{a}, e)
	}
}

// note records a request that did not arrive.
func (a *Account) note(x *exchange, answer *reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.at, x.id = time.Now(), requestID(x.r.Roll)
	a.record(x, answer)
}

// Log returns all requests so far in the order in which they took effect.
func (a *Account) Log() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

// Trace returns the log as text, one request a line.
func (a *Account) Trace() string {
	var b strings.Builder
	for _, e := range a.Log() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// apply makes a change and returns the entity as it is afterwards, nil if it
// was deleted, and what takes the change back.
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

// Worker returns a worker of the account. Workers of different names have
// different latencies. A worker that was killed can be followed by another one
// of its name.
func (a *Account) Worker(name string) *Worker {
	return &Worker{account: a, name: name, dead: make(chan struct{})}
}

// admit numbers a request and decides what goes wrong with it, and how much longer
// than usual it takes.
func (a *Account) admit(r *Request) (fault Fault, delay time.Duration) {
	r.key = hashOf(r.Worker, r.method, withoutNoise(r.Path), withoutNoise(r.queryText()), r.header.Get("x-ms-lease-action"))
	if r.Operation != "AppendBlock" { // whose checksums and numbers differ with the GUIDs and times beside them
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

// leave notes that a request is answered.
func (a *Account) leave(r *Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy[r.Service]--
}

// serve lets the request take effect.
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
		answer = refusal(r.Service, http.StatusBadRequest, "InvalidUri", "no service of this account: "+r.host)
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

// forbid returns the error code of a request that the account refuses.
func (a *Account) forbid(r *Request) string {
	if a.cfg.Forbid == nil {
		return ""
	}
	return a.cfg.Forbid(*r)
}

// beingDeleted returns the refusal to create what is still being deleted, or nil.
func (a *Account) beingDeleted(service, name string) *reply {
	at, was := a.deleted[service+"/"+strings.ToLower(name)]
	if !was || time.Since(at) >= a.cfg.DeletionDelay {
		return nil
	}
	what := map[string]string{QueueService: "Queue", TableService: "Table", BlobService: "Container"}[service]
	return refusal(service, http.StatusConflict, what+"BeingDeleted", "The specified "+strings.ToLower(what)+" is being deleted.")
}

// Snapshot makes a snapshot of a blob, without which the blob cannot be deleted. It returns
// false if the blob does not exist.
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
