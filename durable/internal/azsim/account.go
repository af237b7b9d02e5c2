package azsim

import (
	"context"
	"fmt"
	"io"
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

	// Bandwidth returns the transfer rate of a response's body in bytes per second. 0 means an
	// immediate transfer; default: 0. It must depend only on its argument and on the state that
	// the test controls.
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
