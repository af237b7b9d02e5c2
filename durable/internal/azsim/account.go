package azsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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

	// Loose makes the account promise no more than the service's documentation
	// does: messages are not received in the order in which they were sent, and
	// pages of a query may be short, or empty, and yet have a continuation.
	Loose bool

	// Decide chooses what goes wrong with a request; nil means that nothing does.
	// It is called once for each request, before it is sent. It must depend on
	// nothing but its argument and what the test controls.
	Decide func(Request) Fault

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
	asked      map[uint64]int // how often each thing was asked for
	busy       map[string]int // requests under way, by service
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
			all = append(all, Blob{Container: name, Name: b.name, Content: slices.Clone(b.content), LeaseID: id})
		}
	}
	slices.SortFunc(all, func(x, y Blob) int {
		return cmp.Or(cmp.Compare(x.Container, y.Container), cmp.Compare(x.Name, y.Name))
	})
	return all
}

// transact makes all changes of a transaction or none.
func (a *Account) transact(t *table, r *Request) *reply {
	if len(r.Body) > maxBatchBytes {
		return refuseTable(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	}
	boundary, ops, failed, failure := readTransaction(r)
	if ops == nil && failure != nil {
		return failure
	}
	if failure == nil {
		failed, failure = checkOperations(ops)
	}
	if failure != nil {
		return transactionAnswer(boundary, []*reply{indexed(failed, failure)})
	}
	var undo []func()
	answers := make([]*reply, len(ops))
	for i, op := range ops {
		after, restore, failure := a.apply(t, op)
		if failure != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
			return transactionAnswer(boundary, []*reply{indexed(i, failure)})
		}
		undo = append(undo, restore)
		answers[i] = op.answer(after)
	}
	return transactionAnswer(boundary, answers)
}

func (a *Account) serveBlob(r *Request) *reply {
	if r.Operation == "ListContainers" {
		return a.listContainers(r)
	}
	c := a.containers[r.Target]
	if r.Operation == "CreateContainer" {
		return a.createContainer(c, r)
	}
	if c == nil {
		return refuseBlob(http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")
	}
	name := r.rest()
	switch {
	case name == "":
		return a.serveContainer(c, r)
	case r.Operation == "PutBlob":
		return a.putBlob(c, name, r)
	}
	b := c.blobs[name]
	if b == nil {
		return refuseBlob(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	if strings.HasSuffix(r.Operation, "Lease") {
		return a.serveLease(&b.lease, r, b.etag, b.changed)
	}
	if failure := matchBlob(b, r); failure != nil {
		return failure
	}
	switch r.Operation {
	case "GetBlob", "GetBlobProperties":
		return b.answer(r)
	case "DeleteBlob":
		if failure := b.lease.allowsWrite(r); failure != nil {
			return failure
		}
		delete(c.blobs, name)
		return newReply(http.StatusAccepted)
	case "SetBlobMetadata":
		if failure := b.lease.allowsWrite(r); failure != nil {
			return failure
		}
		b.metadata = metadataOf(r.header)
		b.stamp(a.tick())
		return newReply(http.StatusOK, "ETag", b.etag, "Last-Modified", b.changed.Format(http.TimeFormat))
	}
	return refuseBlob(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support the specified Http Verb.")
}

func (a *Account) createContainer(c *container, r *Request) *reply {
	if c != nil {
		return refuseBlob(http.StatusConflict, "ContainerAlreadyExists", "The specified container already exists.")
	}
	if !validQueueName(r.Target) { // the same rules
		return refuseBlob(http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	}
	at := a.tick()
	c = &container{metadata: metadataOf(r.header), blobs: map[string]*blob{}, etag: etagOf(at), changed: at}
	a.containers[r.Target] = c
	return newReply(http.StatusCreated, "ETag", c.etag, "Last-Modified", at.Format(http.TimeFormat))
}

func (a *Account) serveContainer(c *container, r *Request) *reply {
	if strings.HasSuffix(r.Operation, "Lease") {
		return a.serveLease(&c.lease, r, c.etag, c.changed)
	}
	switch r.Operation {
	case "DeleteContainer":
		if failure := c.lease.allowsWrite(r); failure != nil {
			return failure
		}
		delete(a.containers, r.Target)
		return newReply(http.StatusAccepted)
	case "GetContainerProperties":
		answer := newReply(http.StatusOK, "ETag", c.etag, "Last-Modified", c.changed.Format(http.TimeFormat))
		c.lease.tell(answer)
		copyMetadata(answer.header, c.metadata)
		return answer
	case "SetContainerMetadata":
		c.metadata = metadataOf(r.header)
		c.changed = a.tick()
		c.etag = etagOf(c.changed)
		return newReply(http.StatusOK, "ETag", c.etag, "Last-Modified", c.changed.Format(http.TimeFormat))
	case "ListBlobs":
		return listBlobs(c, r)
	}
	return refuseBlob(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support the specified Http Verb.")
}

func (a *Account) putBlob(c *container, name string, r *Request) *reply {
	if r.header.Get("x-ms-blob-type") != "BlockBlob" {
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: x-ms-blob-type")
	}
	b := c.blobs[name]
	switch {
	case b != nil && r.header.Get("If-None-Match") == "*":
		return refuseBlob(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
	case b == nil && r.header.Get("If-Match") != "":
		return refuseBlob(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	case b == nil && r.header.Get("x-ms-lease-id") != "":
		return refuseBlob(http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation", "There is currently no lease on the blob.")
	case b != nil:
		if failure := matchBlob(b, r); failure != nil {
			return failure
		}
		if failure := b.lease.allowsWrite(r); failure != nil {
			return failure
		}
	default:
		b = &blob{name: name, created: time.Now()}
		c.blobs[name] = b
	}
	b.content, b.metadata = r.Body, metadataOf(r.header)
	b.contentType = "application/octet-stream"
	for _, name := range []string{"Content-Type", "x-ms-blob-content-type"} {
		if v := r.header.Get(name); v != "" {
			b.contentType = v
		}
	}
	b.stamp(a.tick())
	return newReply(http.StatusCreated, "ETag", b.etag, "Last-Modified", b.changed.Format(http.TimeFormat),
		"Content-MD5", sum(b.content), "x-ms-request-server-encrypted", "true")
}

func (a *Account) listContainers(r *Request) *reply {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?><EnumerationResults><Containers>`)
	for _, name := range slices.Sorted(maps.Keys(a.containers)) {
		if strings.HasPrefix(name, r.query.Get("prefix")) {
			c := a.containers[name]
			fmt.Fprintf(&b, "<Container><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified><Etag>%s</Etag></Properties></Container>",
				name, c.changed.Format(http.TimeFormat), strings.Trim(c.etag, `"`))
		}
	}
	b.WriteString("</Containers><NextMarker/></EnumerationResults>")
	return newReply(http.StatusOK).with("application/xml", []byte(b.String()))
}

// Chance returns a source of numbers in [0, 1) for what a worker leaves to
// chance, such as how long it waits before it tries again. The n-th number for a
// purpose depends on the seed, the worker and the purpose only.
func (a *Account) Chance(worker string) func(purpose string) float64 {
	return func(purpose string) float64 {
		key := hashOf("chance", worker, withoutNoise(purpose))
		a.mu.Lock()
		n := a.asked[key]
		a.asked[key]++
		a.mu.Unlock()
		return fraction(mix(a.cfg.Seed, key, uint64(n)))
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

func (a *Account) serveLease(l *lease, r *Request, etag string, changed time.Time) *reply {
	now := time.Now()
	answer := newReply(http.StatusOK, "ETag", etag, "Last-Modified", changed.UTC().Format(http.TimeFormat))
	given, proposed := r.header.Get("x-ms-lease-id"), r.header.Get("x-ms-proposed-lease-id")
	state := l.state(now)
	switch r.Operation {
	case "AcquireLease":
		return l.acquire(r, answer, state, now)
	case "RenewLease":
		switch {
		case state == available || given != l.id:
			return leaseMismatch()
		case state == broken || state == breaking:
			return refuseBlob(http.StatusConflict, "LeaseIsBrokenAndCannotBeRenewed", "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.")
		}
		l.extend(now)
	case "ChangeLease":
		switch {
		case state == available || state == expired || state == broken:
			return refuseBlob(http.StatusConflict, "LeaseNotPresentWithLeaseOperation", "There is currently no lease on the blob.")
		case given != l.id && proposed != l.id:
			return leaseMismatch()
		case state == breaking:
			return refuseBlob(http.StatusConflict, "LeaseIsBreakingAndCannotBeChanged", "The lease ID matched, but the lease is currently in breaking state and cannot be changed.")
		}
		l.id = proposed
	case "ReleaseLease":
		if state == available || given != l.id {
			return leaseMismatch()
		}
		*l = lease{}
		return answer
	case "BreakLease":
		return l.breakUp(r, answer, state, now)
	default:
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: x-ms-lease-action")
	}
	answer.header.Set("x-ms-lease-id", l.id)
	return answer
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

func (a *Account) serveQueue(r *Request) *reply {
	switch r.Operation {
	case "ListQueues":
		return a.listQueues()
	case "CreateQueue":
		return a.createQueue(r)
	}
	q := a.queues[r.Target]
	if q == nil {
		return refusal(QueueService, http.StatusNotFound, "QueueNotFound", "The specified queue does not exist.")
	}
	q.expire(time.Now())
	switch r.Operation {
	case "DeleteQueue":
		delete(a.queues, r.Target)
		return newReply(http.StatusNoContent)
	case "GetQueueMetadata":
		answer := newReply(http.StatusOK, "x-ms-approximate-messages-count", strconv.Itoa(len(q.messages)))
		copyMetadata(answer.header, q.metadata)
		return answer
	case "SetQueueMetadata":
		q.metadata = metadataOf(r.header)
		return newReply(http.StatusNoContent)
	case "PutMessage":
		return a.putMessage(q, r)
	case "GetMessages", "PeekMessages":
		return a.getMessages(q, r)
	case "UpdateMessage":
		return a.updateMessage(q, r)
	case "DeleteMessage":
		return a.deleteMessage(q, r)
	case "ClearMessages":
		q.messages = nil
		return newReply(http.StatusNoContent)
	}
	return refusal(QueueService, http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support the specified Http Verb.")
}

func (a *Account) createQueue(r *Request) *reply {
	metadata := metadataOf(r.header)
	switch q := a.queues[r.Target]; {
	case !validQueueName(r.Target):
		return refusal(QueueService, http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	case q == nil:
		a.queues[r.Target] = &queue{metadata: metadata}
		return newReply(http.StatusCreated)
	case !maps.EqualFunc(q.metadata, metadata, slices.Equal[[]string]):
		return refusal(QueueService, http.StatusConflict, "QueueAlreadyExists", "The specified queue already exists.")
	}
	return newReply(http.StatusNoContent)
}

func (a *Account) listQueues() *reply {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?><EnumerationResults><Queues>`)
	for _, name := range slices.Sorted(maps.Keys(a.queues)) {
		fmt.Fprintf(&b, "<Queue><Name>%s</Name></Queue>", name)
	}
	b.WriteString("</Queues><NextMarker/></EnumerationResults>")
	return newReply(http.StatusOK).with("application/xml", []byte(b.String()))
}

func (a *Account) putMessage(q *queue, r *Request) *reply {
	text, ok := readMessage(r.Body)
	switch {
	case !ok:
		return refusal(QueueService, http.StatusBadRequest, "InvalidXmlDocument", "XML specified is not syntactically valid.")
	case len(text) > maxMessageBytes:
		return tooLarge()
	}
	hidden, ok := r.seconds("visibilitytimeout", 0, 0, maxInvisible)
	if !ok {
		return outOfRange("visibilitytimeout")
	}
	now := time.Now()
	m := &message{
		id: fmt.Sprintf("m-%016x", mix(r.Roll, 5)), text: text,
		insertedAt: now, visibleAt: now.Add(time.Duration(hidden) * time.Second), expiresAt: now.Add(defaultTTL), sent: a.tick(),
	}
	switch ttl, err := strconv.Atoi(cmp.Or(r.query.Get("messagettl"), "604800")); {
	case err != nil || ttl == 0 || ttl < -1 || ttl > 0 && hidden > ttl:
		return refusal(QueueService, http.StatusBadRequest, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.")
	case ttl == -1:
		m.expiresAt = time.Time{}
	default:
		m.expiresAt = now.Add(time.Duration(ttl) * time.Second)
	}
	m.changeReceipt(r.Roll)
	q.messages = append(q.messages, m)
	return newReply(http.StatusCreated).with("application/xml", messagesXML([]*message{m}, withReceipt))
}

func (a *Account) getMessages(q *queue, r *Request) *reply {
	n, ok := r.seconds("numofmessages", 1, 1, maxReceive)
	if !ok {
		return outOfRange("numofmessages")
	}
	hidden, ok := r.seconds("visibilitytimeout", 30, 1, maxInvisible)
	if !ok {
		return outOfRange("visibilitytimeout")
	}
	now := time.Now()
	var visible []*message
	for _, m := range q.messages {
		if !now.Before(m.visibleAt) {
			visible = append(visible, m)
		}
	}
	slices.SortStableFunc(visible, func(x, y *message) int {
		if a.cfg.Loose {
			return cmp.Compare(mix(r.Roll, hashOf(x.id)), mix(r.Roll, hashOf(y.id)))
		}
		return cmp.Or(x.visibleAt.Compare(y.visibleAt), x.sent.Compare(y.sent))
	})
	visible = visible[:min(n, len(visible))]
	if r.Operation == "PeekMessages" {
		return newReply(http.StatusOK).with("application/xml", messagesXML(visible, withText))
	}
	for _, m := range visible {
		m.dequeueCount++
		m.visibleAt = now.Add(time.Duration(hidden) * time.Second)
		m.changeReceipt(r.Roll)
	}
	return newReply(http.StatusOK).with("application/xml", messagesXML(visible, withReceipt|withText))
}

func (a *Account) updateMessage(q *queue, r *Request) *reply {
	hidden, ok := r.seconds("visibilitytimeout", -1, 0, maxInvisible)
	if !ok || hidden < 0 {
		return outOfRange("visibilitytimeout")
	}
	m, failure := q.owned(r)
	if failure != nil {
		return failure
	}
	if len(r.Body) > 0 {
		text, ok := readMessage(r.Body)
		switch {
		case !ok:
			return refusal(QueueService, http.StatusBadRequest, "InvalidXmlDocument", "XML specified is not syntactically valid.")
		case len(text) > maxMessageBytes:
			return tooLarge()
		}
		m.text = text
	}
	m.visibleAt = time.Now().Add(time.Duration(hidden) * time.Second)
	m.changeReceipt(r.Roll)
	return newReply(http.StatusNoContent, "x-ms-popreceipt", m.receipt, "x-ms-time-next-visible", m.visibleAt.UTC().Format(http.TimeFormat))
}

func (a *Account) deleteMessage(q *queue, r *Request) *reply {
	m, failure := q.owned(r)
	if failure != nil {
		return failure
	}
	q.messages = slices.DeleteFunc(q.messages, func(o *message) bool { return o == m })
	return newReply(http.StatusNoContent)
}

func (a *Account) serveTable(r *Request) *reply {
	switch r.Operation {
	case "QueryTables":
		return a.queryTables()
	case "CreateTable":
		return a.createTable(r)
	}
	t := a.tables[foldName(r.Target)]
	if t == nil && r.Operation == "DeleteTable" {
		return refuseTable(http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist.")
	}
	if t == nil {
		return refuseTable(http.StatusNotFound, "TableNotFound", "The table specified does not exist.")
	}
	switch r.Operation {
	case "DeleteTable":
		delete(a.tables, foldName(r.Target))
		return newReply(http.StatusNoContent)
	case "QueryEntities":
		return a.queryEntities(t, r)
	case "GetEntity":
		return a.getEntity(t, r)
	case "EntityGroupTransaction":
		return a.transact(t, r)
	}
	op, failure := readOperation(r.method, lastSegment(r.Path), r.header, r.Body)
	if failure != nil {
		return failure
	}
	e, undo, failure := a.apply(t, op)
	if failure != nil {
		return failure
	}
	_ = undo // of a single operation nothing is taken back
	return op.answer(e)
}

func (a *Account) queryTables() *reply {
	var value []map[string]string
	for _, name := range slices.Sorted(maps.Keys(a.tables)) {
		value = append(value, map[string]string{"TableName": a.tables[name].name})
	}
	body, err := json.Marshal(map[string]any{"value": value})
	if err != nil {
		panic(err) // names always encode
	}
	return newReply(http.StatusOK).with("application/json", body)
}

func (a *Account) createTable(r *Request) *reply {
	var wanted struct{ TableName string }
	if err := json.Unmarshal(r.Body, &wanted); err != nil || !validTableName(wanted.TableName) {
		return refuseTable(http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	}
	if a.tables[foldName(wanted.TableName)] != nil {
		return refuseTable(http.StatusConflict, "TableAlreadyExists", "The table specified already exists.")
	}
	a.tables[foldName(wanted.TableName)] = &table{name: wanted.TableName, entities: map[[2]string]*entity{}}
	if r.header.Get("Prefer") == "return-no-content" {
		return newReply(http.StatusNoContent, "Preference-Applied", "return-no-content")
	}
	body := fmt.Appendf(nil, `{"odata.metadata":"%s/$metadata#Tables/@Element","TableName":%s}`, r.host, quoted(wanted.TableName))
	return newReply(http.StatusCreated).with("application/json;odata=minimalmetadata", body)
}

func (a *Account) getEntity(t *table, r *Request) *reply {
	partitionKey, rowKey, ok := readKeys(lastSegment(r.Path))
	e := t.get(partitionKey, rowKey)
	switch {
	case !ok:
		return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid.")
	case e == nil:
		return refuseTable(http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist.")
	}
	var b bytes.Buffer
	e.writeJSON(&b, selected(r))
	body := append(fmt.Appendf(nil, `{"odata.metadata":"%s/$metadata#%s/@Element",`, r.host, t.name), b.Bytes()[1:]...)
	return newReply(http.StatusOK, "ETag", e.etag).with("application/json;odata=minimalmetadata", body)
}

// queryEntities answers with the entities from where the continuation says that
// match the filter, as many as go into a page.
func (a *Account) queryEntities(t *table, r *Request) *reply {
	matches, err := parseFilter(r.query.Get("$filter"))
	if err != nil {
		return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: "+err.Error())
	}
	top, ok := r.seconds("$top", maxPage, 1, 1<<30)
	if !ok {
		return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: $top")
	}
	top = min(top, maxPage)
	all := t.sorted()
	if r.query.Has("NextPartitionKey") {
		first, ok := continuationOf(r)
		if !ok {
			return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: the continuation")
		}
		i, _ := slices.BinarySearchFunc(all, first, compareKeys)
		all = all[i:]
	}
	found := slices.DeleteFunc(slices.Clone(all), func(e *entity) bool { return !matches(e) })
	end := min(top, len(found))
	if a.cfg.Loose && r.Roll%4 == 0 { // a page may end anywhere
		end = int(mix(r.Roll, 7) % uint64(end+1))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"odata.metadata":"%s/$metadata#%s","value":[`, r.host, t.name)
	for i, e := range found[:end] {
		if i > 0 {
			b.WriteByte(',')
		}
		e.writeJSON(&b, selected(r))
	}
	b.WriteString("]}")
	answer := newReply(http.StatusOK)
	if end < len(found) {
		answer.header.Set("x-ms-continuation-NextPartitionKey", toToken(found[end].partitionKey))
		if row := found[end].rowKey; row != "" { // as the service may do; Azurite returns an empty header
			answer.header.Set("x-ms-continuation-NextRowKey", toToken(row))
		}
	}
	return answer.with("application/json;odata=minimalmetadata", b.Bytes())
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
	r.key = mix(r.key, fingerprint(r.Body))
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
	switch r.Service {
	case QueueService:
		answer = a.serveQueue(r)
	case TableService:
		answer = a.serveTable(r)
	case BlobService:
		answer = a.serveBlob(r)
	default:
		answer = refusal(r.Service, http.StatusBadRequest, "InvalidUri", "no service of this account: "+r.host)
	}
	a.record(x, answer)
	return answer
}
