package inbound

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// Inbox holds the received control-queue messages that are not yet delivered, by instance. An
// instance is in one of three states: its history is being loaded, it is ready, or it is in a
// session (DurableTask.AzureStorage/OrchestrationSessionManager.cs).
type Inbox struct {
	*monitor.Monitor
	workerID  string
	held      *inflight.Messages
	decoder   *Decoder
	disposer  *Disposer
	instances *instances.Store
	buffer    buffer

	mu      sync.Mutex // protects the following
	slots   map[string]*slot
	ready   []*slot       // instances whose first batch can be delivered
	changed chan struct{} // closed when ready or closed changes
	closed  bool          // no further deliveries
}

// slot holds the messages of one instance.
type slot struct {
	id        string
	partition *Partition
	lock      *Lock                // of the session that runs the instance, or nil
	incoming  []*inflight.Delivery // messages for the session
	batches   []*messageBatch      // without a session, the first is being loaded or is ready
}

// NewInbox returns an inbox for at most size messages in memory.
func NewInbox(workerID string, size int, held *inflight.Messages, decoder *Decoder, d *Disposer) *Inbox {
	return &Inbox{
		Monitor: held.Monitor, workerID: workerID, held: held, decoder: decoder, disposer: d, instances: d.Instances,
		buffer: newBuffer(size, held.Limit),
		slots:  map[string]*slot{}, changed: make(chan struct{}),
	}
}

// signal wakes all waiters for a change. The caller holds b.mu.
func (b *Inbox) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Close stops the delivery. Sessions that wait for more messages get none.
func (b *Inbox) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

// add accepts all of the messages before the first one is delivered. If a message resumes its instance, add
// makes the instance's hidden activities visible. During a session it also receives the instance's hidden
// messages again; without a session, endPause does this.
func (b *Inbox) add(r *Reading, deliveries ...*inflight.Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range deliveries {
		b.place(r, d)
		if id := d.Target().InstanceID; d.Resumes() {
			inSession := b.slots[id].lock != nil
			r.Spawn(func() {
				b.held.Hidden.RevealOthers(r.Work, id, r.partition.queue)
				if inSession {
					r.Arrive(r.receiveHidden(id)...)
				}
			})
		}
	}
}

// place adds a message to the session of its instance if the session runs the message's execution.
// Otherwise it adds it to a batch of that execution or to a new batch. A start message always
// starts a new batch (OrchestrationSessionManager.cs, AddMessageToPendingOrchestration). The caller
// holds b.mu.
func (b *Inbox) place(r *Reading, d *inflight.Delivery) {
	target := d.Target()
	_, isStart := d.Event().(*history.ExecutionStarted)
	s := b.slots[target.InstanceID]
	if s == nil {
		s = &slot{id: target.InstanceID, partition: r.partition}
		b.slots[target.InstanceID] = s
	}
	if s.lock != nil && !isStart && matches(target.ExecutionID, s.lock.ExecutionID()) {
		s.incoming = append(s.incoming, d)
		b.signal()
		return
	}
	if !isStart {
		for _, batch := range slices.Backward(s.batches) {
			if batch.executionID == "" || matches(target.ExecutionID, batch.executionID) {
				if batch.executionID == "" && batch.loaded == nil {
					batch.executionID = target.ExecutionID
				}
				batch.deliveries = append(batch.deliveries, d)
				return
			}
		}
	}
	s.batches = append(s.batches, &messageBatch{executionID: target.ExecutionID, deliveries: []*inflight.Delivery{d}})
	if s.lock != nil {
		b.signal() // the session must end: another execution has messages
	}
	b.advance(r, s)
}

// advance starts to load the slot's first batch unless the instance has a session or is being
// loaded. It deletes a slot without messages. The caller holds b.mu.
func (b *Inbox) advance(r *Reading, s *slot) {
	switch {
	case s.lock != nil:
	case len(s.batches) == 0:
		delete(b.slots, s.id)
	case s.batches[0].loaded == nil:
		batch := s.batches[0]
		if r.Spawn(func() { b.load(r, s, batch) }) {
			batch.loaded = loading
		}
	}
}

// loading is the value of messageBatch.loaded while the batch is being loaded.
var loading = new(instances.Instance)

// prefetchRetryDelay is the maximum delay before another attempt to load an instance
// (OrchestrationSessionManager.cs, ScheduleOrchestrationStatePrefetch).
const prefetchRetryDelay = 5 * time.Second

// load loads an instance and disposes of the messages that cannot be delivered now. If messages are
// left, it makes the instance ready.
func (b *Inbox) load(r *Reading, s *slot, batch *messageBatch) {
	b.mu.Lock()
	executionID, first, loaded := batch.executionID, batch.deliveries[0].Event(), batch.deliveries[0].NewInstance
	b.mu.Unlock()
	if loaded == nil {
		loaded = b.instances.Cached(s.id, executionID)
		b.Meter.RecordLookup(loaded != nil)
	}
	if loaded == nil {
		loaded = b.read(r.Context, s.id, executionID, first)
		b.awaitInstanceRow(r.Context, batch, loaded)
	}
	for loaded != nil { // nil if the reading has ended; releasePartition then releases the messages
		if start := b.endPause(r, batch, loaded); start != nil {
			executionID, first = start.Target().ExecutionID, start.Event()
			loaded = b.read(r.Context, s.id, executionID, first)
			continue
		}
		b.mu.Lock()
		batch.loaded = loaded
		if batch.executionID == "" {
			batch.executionID = loaded.ExecutionID
		}
		deliveries := slices.Clone(batch.deliveries)
		b.mu.Unlock()

		disposals := b.disposer.divide(s.id, loaded, nil, deliveries)
		if loaded.Unverified && len(disposals.settled) > 0 {
			loaded = b.read(r.Context, s.id, executionID, first)
			continue
		}
		disposals.apply(r.Work)

		b.mu.Lock()
		batch.deliveries = without(batch.deliveries, disposals.settled)
		if more := len(batch.deliveries) > len(disposals.deliver); more {
			b.mu.Unlock()
			continue // more messages have arrived
		}
		if len(batch.deliveries) > 0 {
			b.ready = append(b.ready, s)
			b.signal()
		} else {
			s.batches = s.batches[1:]
			b.advance(r, s)
		}
		b.mu.Unlock()
		return
	}
}

// endPause adds the hidden messages of an instance to a batch that suspends or resumes the instance, and to a
// batch that starts it if the suspension or resumption is hidden.
// Messages that do not belong to the batch are delivered after it. If one of the added messages is a
// start, endPause returns it. The caller must then load its execution. It adds no messages if the instance
// is not running and has no start to deliver: each of its messages would be hidden again.
func (b *Inbox) endPause(r *Reading, batch *messageBatch, loaded *instances.Instance) (start *inflight.Delivery) {
	b.mu.Lock()
	first := batch.deliveries[0]
	ends, id := slices.ContainsFunc(batch.deliveries, (*inflight.Delivery).EndsPause), first.Target().InstanceID
	b.mu.Unlock()
	ends = ends || first.IsStart() && b.held.Hidden.HasPauseEnd(id)
	isRunning := loaded.Known.Started && loaded.Known.Ended == nil
	if !ends || !isRunning && !first.IsStart() && !b.held.Hidden.CanStart(id, loaded.Row) {
		return nil
	}
	again := r.receiveHidden(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if isRunning && batch.executionID == "" { // the start of another execution is delivered after the batch
		batch.executionID = loaded.ExecutionID
	}
	for _, d := range batch.join(again) {
		b.place(r, d)
	}
	if first = batch.deliveries[0]; first.IsStart() && slices.Contains(again, first) {
		return first
	}
	return nil
}

// read loads an instance from storage. It retries until it succeeds, and returns nil if ctx ends.
func (b *Inbox) read(ctx context.Context, instanceID, executionID string, first history.Event) *instances.Instance {
	for delay := store.FirstOutageDelay; ; delay = min(2*delay, prefetchRetryDelay) {
		loaded, err := b.instances.LoadFor(ctx, instanceID, executionID, first)
		if err == nil {
			b.Health.OK("tables")
			return loaded
		}
		if ctx.Err() != nil {
			return nil
		}
		if store.IsTransient(err) {
			b.Health.Failed("tables", err)
		} else {
			b.Log.Error("OrchestrationProcessingFailure", "instanceId", instanceID, "executionId", executionID, "details", "cannot read the instance from storage", "error", err)
		}
		if !pause.For(ctx, store.Jitter(ctx, "load "+instanceID, delay)) {
			return nil
		}
	}
}

// A client inserts the instance row just after it sends the start message. If the message is
// received between the two, the worker reads the row every rowInterval for up to rowWait before it
// holds the message back.
const (
	rowWait     = 400 * time.Millisecond
	rowInterval = 40 * time.Millisecond
)

// awaitInstanceRow reads the instance row again, for at most rowWait, if a start message was
// received before the row was inserted.
func (b *Inbox) awaitInstanceRow(ctx context.Context, batch *messageBatch, loaded *instances.Instance) {
	b.mu.Lock()
	first := batch.deliveries[0]
	b.mu.Unlock()
	start, isStart := first.Event().(*history.ExecutionStarted)
	if !isStart || loaded == nil || start.Parent != nil || first.DequeueCount > 1 {
		return
	}
	for waited := time.Duration(0); waited < rowWait; waited += rowInterval {
		if loaded.Row != nil && loaded.Row.State.Instance.ExecutionID == start.Instance.ExecutionID {
			return
		}
		if !pause.For(ctx, rowInterval) {
			return
		}
		row, err := b.instances.Rows.Read(ctx, start.Instance.InstanceID)
		if err != nil {
			return
		}
		loaded.Row = row
	}
}

// Next waits for an instance that is ready, and locks it with the messages to deliver.
func (b *Inbox) Next(ctx context.Context) (*Lock, error) {
	work := context.WithoutCancel(ctx) // disposals are completed even if ctx ends
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b.mu.Lock()
		changed := b.changed
		var s *slot
		if !b.closed {
			s = b.takeReady()
		}
		if s == nil {
			b.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		l := b.startLock(s)
		if l == nil && s.partition.hasLapsed() {
			b.ready = append(b.ready, s)
		}
		b.mu.Unlock()
		if l == nil {
			continue
		}
		// Messages that arrived since the load have no dispositions yet.
		disposals := b.disposer.divide(s.id, l.Loaded, nil, l.Current)
		if l.Loaded.Unverified && len(disposals.settled) > 0 {
			l.requeue()
			continue
		}
		disposals.apply(work)
		l.Current = disposals.deliver
		if len(l.Current) > 0 {
			return l, nil
		}
		l.Unlock(work)
	}
}

// takeReady removes and returns the first ready instance, or nil. It skips instances of a partition
// whose lease has ended. The lease may still be renewed; if it is lost, the messages are released.
// The caller holds b.mu.
func (b *Inbox) takeReady() *slot {
	for i, s := range b.ready {
		if !s.partition.hasLapsed() {
			b.ready = slices.Delete(b.ready, i, i+1)
			return s
		}
	}
	return nil
}

// leaseRenewed resumes the delivery of instances that takeReady has skipped.
func (b *Inbox) leaseRenewed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signal()
}

// startLock locks the slot's instance with its first batch. It returns nil if this worker does not
// own the partition, or if the slot has a lock or no loaded batch. The caller holds b.mu.
func (b *Inbox) startLock(s *slot) *Lock {
	if s.lock != nil || len(s.batches) == 0 || s.batches[0].loaded == nil || !s.partition.startSession() {
		return nil
	}
	batch := s.batches[0]
	s.batches = s.batches[1:]
	s.lock = &Lock{
		inbox: b, slot: s, InstanceID: s.id, Partition: s.partition, Loaded: batch.loaded, Current: batch.deliveries,
		execution: cmp.Or(batch.loaded.ExecutionID, batch.executionID),
	}
	return s.lock
}

// releasePartition releases all messages of a partition that are not in a session.
func (b *Inbox) releasePartition(ctx context.Context, p *Partition) {
	var deliveries []*inflight.Delivery
	b.mu.Lock()
	for id, s := range b.slots {
		if s.partition != p {
			continue
		}
		for _, batch := range s.batches {
			deliveries = append(deliveries, batch.deliveries...)
		}
		deliveries = append(deliveries, s.incoming...)
		s.batches, s.incoming = nil, nil
		if s.lock == nil {
			delete(b.slots, id)
		}
	}
	b.ready = slices.DeleteFunc(b.ready, func(s *slot) bool { return s.partition == p })
	b.signal() // sessions that wait for more messages must end
	b.mu.Unlock()
	b.instances.EvictAll(p.has) // another worker may advance them from now on
	if len(deliveries) > 0 {
		b.Log.Info("messages released: the partition is no longer read", "partition", p.queue.Name, "count", len(deliveries))
	}
	inflight.ReleaseAll(ctx, deliveries)
}

// StopRenewals stops renewing received messages if the buffer holds more than twice most. The argument most
// is the number of messages that this process can renew and finish. StopRenewals starts with the newest
// instances. It sends no request: the messages are no longer renewed, and become visible when their
// visibility timeouts end. It keeps all messages of an instance if one of them is ordered.
func (b *Inbox) StopRenewals(most int) {
	excess := b.buffer.inUse() - most
	if excess <= most {
		return
	}
	var shed []*inflight.Delivery
	b.mu.Lock()
	for i, s := range slices.Backward(b.ready) { // the newest first
		var all []*inflight.Delivery
		for _, batch := range s.batches {
			all = append(all, batch.deliveries...)
		}
		if len(shed) >= excess || slices.ContainsFunc(all, (*inflight.Delivery).IsOrdered) {
			continue
		}
		b.ready = slices.Delete(b.ready, i, i+1)
		delete(b.slots, s.id)
		s.partition.backlog.hint()
		shed = append(shed, all...)
	}
	b.mu.Unlock()
	for _, d := range shed {
		d.Settle()
	}
	if len(shed) > 0 {
		b.Log.Warn("messages released: the queues accept too few requests to renew them", "count", len(shed))
	}
}

// Count adds the resources in use to all.
func (b *Inbox) Count(all inuse.Counts) {
	b.buffer.mu.Lock()
	all["reserved slots of control-queue messages"] = b.buffer.used
	b.buffer.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	all["instances with messages"], all["ready instances"] = len(b.slots), len(b.ready)
}

// Position returns the number of messages that are ahead of the messages of a ready instance.
func (b *Inbox) Position(id string) (messages int, isReady bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.ready {
		if s.id == id {
			return messages, true
		}
		if len(s.batches) > 0 {
			messages += len(s.batches[0].deliveries)
		}
	}
	return 0, false
}

// hasStart reports whether the inbox has the start message of an instance, or its session may have
// it.
func (b *Inbox) hasStart(instance history.OrchestrationInstance) bool {
	isStart := func(d *inflight.Delivery) bool {
		start, ok := d.Event().(*history.ExecutionStarted)
		return ok && start.Instance == instance
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slots[instance.InstanceID]
	return s != nil && (s.lock != nil || slices.ContainsFunc(s.batches, func(batch *messageBatch) bool {
		return slices.ContainsFunc(batch.deliveries, isStart)
	}))
}
