package azurestorage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// inbox holds the control-queue messages that were received and not yet delivered, by
// instance. An instance is in one state at a time: what is stored of it is being read,
// it is ready, or it is in a session
// (DurableTask.AzureStorage/OrchestrationSessionManager.cs).
type inbox struct {
	hub    *TaskHub
	buffer buffer

	mu      sync.Mutex // protects the following
	slots   map[string]*slot
	ready   []*slot       // instances whose first batch can be delivered
	changed chan struct{} // closed when ready or closed changes
	closed  bool          // nothing is delivered any more
}

// slot is what the inbox has of one instance.
type slot struct {
	id        string
	partition *partition
	session   *session        // handed out, or nil
	incoming  []*delivery     // for the session
	batches   []*messageBatch // the first is being loaded or ready unless there is a session
}

// messageBatch is messages of one execution that are delivered together.
type messageBatch struct {
	executionID string // empty if no message names one
	deliveries  []*delivery
	loaded      *instances.Instance // nil until loaded
}

func newInbox(h *TaskHub) *inbox {
	return &inbox{
		hub: h, buffer: newBuffer(h.cfg.ControlQueueBufferThreshold, h.held.most),
		slots: map[string]*slot{}, changed: make(chan struct{}),
	}
}

// signal wakes all waiters for a change. b.mu is held.
func (b *inbox) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// close ends the delivery; sessions that wait for more messages get none.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

// add takes messages in, all before the first is delivered. A resumption shows the hidden
// messages of its instance.
func (b *inbox) add(r *reading, deliveries ...*delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range deliveries {
		if id := d.target().InstanceID; d.resumes() {
			r.spawn(func() { b.hub.hidden.show(r.work, id) })
		}
		b.sort(r, d)
	}
}

// sort puts a message where it belongs: to the session of its instance if that runs
// the execution which the message is for, else to a batch of that execution, else to
// a new batch. A start message always begins a new batch
// (OrchestrationSessionManager.cs, AddMessageToPendingOrchestration). b.mu is held.
func (b *inbox) sort(r *reading, d *delivery) {
	target := d.target()
	_, isStart := d.event().(*history.ExecutionStarted)
	s := b.slots[target.InstanceID]
	if s == nil {
		s = &slot{id: target.InstanceID, partition: r.partition}
		b.slots[target.InstanceID] = s
	}
	if s.session != nil && !isStart && concerns(target.ExecutionID, s.session.executionID()) {
		s.incoming = append(s.incoming, d)
		b.signal()
		return
	}
	if !isStart {
		for _, batch := range slices.Backward(s.batches) {
			if batch.executionID == "" || concerns(target.ExecutionID, batch.executionID) {
				if batch.executionID == "" && batch.loaded == nil {
					batch.executionID = target.ExecutionID
				}
				batch.deliveries = append(batch.deliveries, d)
				return
			}
		}
	}
	s.batches = append(s.batches, &messageBatch{executionID: target.ExecutionID, deliveries: []*delivery{d}})
	if s.session != nil {
		b.signal() // the session's instance is wanted for another execution
	}
	b.advance(r, s)
}

// executionNamedBy returns the execution that messages are for, empty if none of
// them names one.
func executionNamedBy(deliveries []*delivery) string {
	for _, d := range deliveries {
		if id := d.target().ExecutionID; id != "" {
			return id
		}
	}
	return ""
}

// concerns reports whether a message for an execution, any if it is empty, can
// be for the one that is known.
func concerns(wanted, known string) bool { return wanted == "" || wanted == known }

// advance begins to load an instance's first batch if nothing else is going on
// with the instance, and forgets the instance if there is none. b.mu is held.
func (b *inbox) advance(r *reading, s *slot) {
	switch {
	case s.session != nil:
	case len(s.batches) == 0:
		delete(b.slots, s.id)
	case s.batches[0].loaded == nil:
		batch := s.batches[0]
		if r.spawn(func() { b.load(r, s, batch) }) {
			batch.loaded = loading
		}
	}
}

// loading stands for what is not yet loaded.
var loading = new(instances.Instance)

// prefetchRetryDelay is how long to wait after what is stored of an instance
// could not be read (OrchestrationSessionManager.cs, ScheduleOrchestrationStatePrefetch).
const prefetchRetryDelay = 5 * time.Second

// load reads what is stored of an instance, disposes of the messages that cannot be
// delivered now, and makes the instance ready if any are left.
func (b *inbox) load(r *reading, s *slot, batch *messageBatch) {
	b.mu.Lock()
	executionID, first, loaded := batch.executionID, batch.deliveries[0].event(), batch.deliveries[0].fresh
	b.mu.Unlock()
	if loaded == nil {
		loaded = b.hub.instances.Remembered(s.id, executionID)
		b.hub.meter.LookedUp(loaded != nil)
	}
	if loaded == nil {
		loaded = b.read(r.ctx, s.id, executionID, first)
		b.awaitInstanceRow(r.ctx, batch, loaded)
	}
	for loaded != nil { // else handBack takes care of the messages
		b.mu.Lock()
		batch.loaded = loaded
		if batch.executionID == "" {
			batch.executionID = loaded.ExecutionID
		}
		deliveries := slices.Clone(batch.deliveries)
		b.mu.Unlock()

		disposals := dispositionsOf(b.hub, s.id, loaded, deliveries)
		if loaded.Unverified && len(disposals.settled) > 0 {
			loaded = b.read(r.ctx, s.id, executionID, first)
			continue
		}
		disposals.apply(r.work)

		b.mu.Lock()
		batch.deliveries = without(batch.deliveries, disposals.settled)
		if more := len(batch.deliveries) > len(disposals.deliver); more {
			b.mu.Unlock()
			continue // some came in the meantime
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

// read reads what is stored of an instance. It tries until it succeeds, or returns nil
// if ctx ends.
func (b *inbox) read(ctx context.Context, instanceID, executionID string, first history.Event) *instances.Instance {
	for delay := store.FirstOutageDelay; ; delay = min(2*delay, prefetchRetryDelay) {
		loaded, err := b.hub.instances.LoadFor(ctx, instanceID, executionID, first)
		if err == nil {
			b.hub.health.OK("tables")
			return loaded
		}
		if ctx.Err() != nil {
			return nil
		}
		if store.IsTransient(err) {
			b.hub.health.Failed("tables", err)
		} else {
			b.hub.log.Error("OrchestrationProcessingFailure", "instanceId", instanceID, "executionId", executionID, "details", "read what is stored of it", "error", err)
		}
		if !pause.For(ctx, store.Jitter(ctx, "load "+instanceID, delay)) {
			return nil
		}
	}
}

// The client writes the instance row just after the start message. A message that is
// received between the two waits for a moment before it is abandoned for seconds.
const (
	rowPatience = 400 * time.Millisecond
	rowInterval = 40 * time.Millisecond
)

// awaitInstanceRow reads the instance row again, for rowPatience at most, if a start
// message was received before the row was written.
func (b *inbox) awaitInstanceRow(ctx context.Context, batch *messageBatch, loaded *instances.Instance) {
	b.mu.Lock()
	first := batch.deliveries[0]
	b.mu.Unlock()
	start, isStart := first.event().(*history.ExecutionStarted)
	if !isStart || loaded == nil || start.Parent != nil || first.dequeueCount > 1 {
		return
	}
	for waited := time.Duration(0); waited < rowPatience; waited += rowInterval {
		if loaded.Row != nil && loaded.Row.State.Instance.ExecutionID == start.Instance.ExecutionID {
			return
		}
		if !pause.For(ctx, rowInterval) {
			return
		}
		row, err := b.hub.instances.Rows.Read(ctx, start.Instance.InstanceID)
		if err != nil {
			return
		}
		loaded.Row = row
	}
}

// next waits for an instance that is ready and returns a session of it with the
// messages to deliver.
func (b *inbox) next(ctx context.Context) (*session, error) {
	work := context.WithoutCancel(ctx) // what was begun is brought to its end
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
		sess := b.begin(s)
		if sess == nil && s.partition.hasLapsed() {
			b.ready = append(b.ready, s)
		}
		b.mu.Unlock()
		if sess == nil {
			continue
		}
		// The dispositions of what came meanwhile are not known yet.
		disposals := dispositionsOf(b.hub, s.id, sess.loaded, sess.current)
		if sess.loaded.Unverified && len(disposals.settled) > 0 {
			b.putBack(sess)
			continue
		}
		disposals.apply(work)
		sess.current = disposals.deliver
		if len(sess.current) > 0 {
			return sess, nil
		}
		_ = sess.Release(work) // of nothing; it cannot fail
	}
}

// putBack makes a batch of a session's messages again. Their dispositions are decided
// anew by what is stored.
func (b *inbox) putBack(sess *session) {
	b.mu.Lock()
	sess.slot.incoming = append(sess.current, sess.slot.incoming...)
	b.mu.Unlock()
	sess.current, sess.failed = nil, true
	_ = sess.Release(context.Background()) // of nothing; it cannot fail
}

// takeReady takes the first instance that is ready, nil if there is none. Those of
// a partition whose lease could not be renewed in time stay: it may be renewed yet, and
// if it is lost, they are released. b.mu is held.
func (b *inbox) takeReady() *slot {
	for i, s := range b.ready {
		if !s.partition.hasLapsed() {
			b.ready = slices.Delete(b.ready, i, i+1)
			return s
		}
	}
	return nil
}

// resume delivers what had to wait because a lease had not been renewed in time.
func (b *inbox) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signal()
}

// begin makes a session of the slot's first batch, nil if this worker does not own the
// partition any more. b.mu is held.
func (b *inbox) begin(s *slot) *session {
	if s.session != nil || len(s.batches) == 0 || s.batches[0].loaded == nil || !s.partition.sessionBegins() {
		return nil
	}
	batch := s.batches[0]
	s.batches = s.batches[1:]
	s.session = newSession(b, s, batch)
	return s.session
}

// end takes the session off its slot. What came for it becomes a batch of its own,
// whose dispositions are decided by what is stored now.
func (b *inbox) end(ctx context.Context, sess *session) {
	s := sess.slot
	b.mu.Lock()
	incoming := s.incoming
	s.incoming, s.session = nil, nil
	if r := s.partition.currentReading(); r != nil && !b.closed {
		sess.remember()
		if len(incoming) > 0 {
			s.batches = slices.Insert(s.batches, 0, &messageBatch{deliveries: incoming})
			incoming = nil
		}
		for _, batch := range s.batches { // what they know is of before what the session committed, or somebody else
			batch.loaded, batch.executionID = nil, executionNamedBy(batch.deliveries)
		}
		b.advance(r, s)
	} else if len(s.batches) == 0 {
		delete(b.slots, s.id)
	}
	b.mu.Unlock()
	s.partition.sessionEnds()
	handBackAll(ctx, incoming)
}

// handBack releases all messages of a partition that are not in a session.
func (b *inbox) handBack(ctx context.Context, p *partition) {
	var deliveries []*delivery
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
		if s.session == nil {
			delete(b.slots, id)
		}
	}
	b.ready = slices.DeleteFunc(b.ready, func(s *slot) bool { return s.partition == p })
	b.signal() // sessions that wait for more must end
	b.mu.Unlock()
	b.hub.instances.ForgetAll(func(id string) bool { return b.hub.partitionOf(id) == p }) // others may have them from now on
	if len(deliveries) > 0 {
		b.hub.log.Info("messages handed back", "partition", p.queue.Name, "count", len(deliveries))
	}
	handBackAll(ctx, deliveries)
}

// shed releases received messages if the buffer holds more than twice as many messages as
// this process can renew and finish, which is most. It sends no request: the messages are not
// renewed, and become visible when their visibility timeouts end. It keeps the messages of an
// instance if one of them is ordered.
func (b *inbox) shed(most int) {
	excess := b.buffer.inUse() - most
	if excess <= most {
		return
	}
	var shed []*delivery
	b.mu.Lock()
	for i, s := range slices.Backward(b.ready) { // the newest first
		var all []*delivery
		for _, batch := range s.batches {
			all = append(all, batch.deliveries...)
		}
		if len(shed) >= excess || slices.ContainsFunc(all, (*delivery).isOrdered) {
			continue
		}
		b.ready = slices.Delete(b.ready, i, i+1)
		delete(b.slots, s.id)
		s.partition.backlog.add()
		shed = append(shed, all...)
	}
	b.mu.Unlock()
	for _, d := range shed {
		d.settle()
	}
	if len(shed) > 0 {
		b.hub.log.Warn("messages released: the queues accept too few requests to renew them", "count", len(shed))
	}
}

// handBackAll releases messages: they become visible now.
func handBackAll(ctx context.Context, deliveries []*delivery) {
	forEach(deliveries, func(d *delivery) { d.handBack(ctx, 0) })
}

// without returns those of all that are not among some.
func without(all, some []*delivery) []*delivery {
	return slices.DeleteFunc(all, func(d *delivery) bool { return slices.Contains(some, d) })
}

func (b *inbox) count(all inuse.Counts) {
	b.buffer.mu.Lock()
	all["places of control-queue messages"] = b.buffer.used
	b.buffer.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	all["instances with messages"], all["instances that are ready"] = len(b.slots), len(b.ready)
}

// before returns how many messages are delivered before those of an instance that is ready.
func (b *inbox) before(id string) (messages int, isReady bool) {
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

// hasStart reports whether the start message of an instance is in the inbox, or may be
// in its session.
func (b *inbox) hasStart(instance history.OrchestrationInstance) bool {
	isStart := func(d *delivery) bool {
		start, ok := d.event().(*history.ExecutionStarted)
		return ok && start.Instance == instance
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slots[instance.InstanceID]
	return s != nil && (s.session != nil || slices.ContainsFunc(s.batches, func(batch *messageBatch) bool {
		return slices.ContainsFunc(batch.deliveries, isStart)
	}))
}

// incoming takes the messages that came for a session. wanted means that the session
// must end: the worker stops, the partition is being drained, or the instance has
// messages for another execution.
func (b *inbox) incoming(sess *session) (deliveries []*delivery, wanted bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := sess.slot
	if b.closed || len(s.batches) > 0 || s.partition.currentReading() == nil {
		return nil, true, nil
	}
	deliveries, s.incoming = s.incoming, nil
	return deliveries, false, b.changed
}
