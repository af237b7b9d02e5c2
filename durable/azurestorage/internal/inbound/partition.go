package inbound

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// A Partition is a control queue and this worker's lease on it. The worker reads the queue while it
// has the lease and no other worker has requested it.
type Partition struct {
	inbox    *Inbox
	queue    *store.Queue
	index    int // among the partitions of the hub
	of       int // number of partitions of the hub
	polling  Polling
	acquired store.Nudge     // sent when the worker starts to read the queue
	tasks    *sync.WaitGroup // drains in progress
	// Background functions run while the queue is read. Their argument work outlives ctx.
	Background []func(ctx, work context.Context)

	Wake    store.Nudge // this process has sent a message to the queue
	backlog backlog

	OldestStart oldestStart

	mu       sync.Mutex    // protects the following
	reading  *Reading      // nil unless the queue is being read
	stopping bool          // the last reading is being stopped
	until    clocks.Moment // end of the lease
	sessions int           // dispatched and not released
	idle     chan struct{}
	drain    leases.DrainState
	drains   int       // number of drains so far
	leaves   time.Time // end of the drain
}

// Polling configures the polls of control queues.
type Polling struct {
	BatchSize   int           // maximum number of messages per receive
	MaxInterval time.Duration // longest pause between two polls of an empty queue
}

// Partitions are all partitions of a hub.
type Partitions []*Partition

// NewPartitions returns the partitions of control queues. acquired is sent when this worker starts to
// read one of the queues. tasks counts drains in progress.
func NewPartitions(b *Inbox, queues []*store.Queue, polling Polling, acquired store.Nudge, tasks *sync.WaitGroup) Partitions {
	all := make(Partitions, len(queues))
	for i, q := range queues {
		all[i] = &Partition{inbox: b, queue: q, index: i, of: len(queues), polling: polling, acquired: acquired, tasks: tasks, Wake: store.NewNudge()}
	}
	return all
}

// Of returns the partition of an instance.
func (all Partitions) Of(instanceID string) *Partition {
	return all[wire.PartitionOf(instanceID, len(all))]
}

// StartReading starts to read the queue, or continues to read it. The lease ends at until.
func (p *Partition) StartReading(work context.Context, until clocks.Moment) {
	if p.hasLapsed() {
		defer p.inbox.leaseRenewed()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
	if p.reading != nil || p.stopping {
		return // if stopping, the next pass over the partitions tries again
	}
	p.drain = leases.NotDraining
	p.backlog.hint()
	ctx, cancel := context.WithCancel(work)
	r := &Reading{partition: p, Context: ctx, Work: work, cancel: cancel, since: time.Now()}
	p.reading = r
	r.Spawn(func() { r.poll() })
	p.acquired.Send()
	for _, f := range p.Background {
		r.Spawn(func() { f(r.Context, r.Work) })
	}
	p.inbox.Log.Info("partition acquired", "event", "LeaseAcquisitionSucceeded", "partition", p.queue.Name, "workerId", p.inbox.workerID)
	p.inbox.Meter.RecordOwnership(p.queue.Name, metering.Acquired)
	p.inbox.Meter.AddOwned(p.queue.Name, 1)
}

// IsListening reports whether the queue is being read and the lease has not ended.
func (p *Partition) IsListening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && !p.until.HasPassed(p.inbox.Clock.Now())
}

// TimeToLeave returns the time left for sessions if the queue is no longer read; ok is false if it is
// read. No time is left if the lease is lost.
func (p *Partition) TimeToLeave() (left time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drain == leases.Draining {
		left = time.Until(p.leaves)
	}
	return left, p.reading == nil
}

// Name implements [leases.Partition]. It returns the name of the control queue.
func (p *Partition) Name() string { return p.queue.Name }

// IsReading implements [outbound.ControlQueue].
func (p *Partition) IsReading() bool { return p.CurrentReading() != nil }

// has reports whether the messages of an instance go to the partition.
func (p *Partition) has(instanceID string) bool {
	return wire.PartitionOf(instanceID, p.of) == p.index
}

// CurrentReading returns the reading of the queue, or nil.
func (p *Partition) CurrentReading() *Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading
}

// OwnedSince returns when the reading of the queue started, or the zero time if the queue is not
// being read.
func (p *Partition) OwnedSince() time.Time {
	if r := p.CurrentReading(); r != nil {
		return r.since
	}
	return time.Time{}
}

// LeaseEnd returns when the lease ends unless it is renewed.
func (p *Partition) LeaseEnd() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.until.Left(p.inbox.Clock.Now()))
}

// hasLapsed reports whether the queue is being read although the lease has ended. The lease may
// still be renewed.
func (p *Partition) hasLapsed() bool { return p.Expired(p.inbox.Clock.Now()) }

// Expired reports whether the queue is being read although the lease ended before now.
func (p *Partition) Expired(now clocks.Moment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && p.until.HasPassed(now)
}

// StopReading stops reading the queue. After the call no message of the partition is delivered. The
// returned function may take long: it waits for a pending receive, and releases the undelivered
// messages. .NET leaves them hidden for minutes (OrchestrationSessionManager.cs, DrainAsync).
func (p *Partition) StopReading(work context.Context) (finish func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reading
	if r == nil {
		return func() {}
	}
	p.reading, p.stopping = nil, true
	p.inbox.Meter.AddOwned(p.queue.Name, -1)
	return func() {
		r.stop()
		p.inbox.releasePartition(work, p)
		p.mu.Lock()
		p.stopping = false
		p.mu.Unlock()
	}
}

// BeginDrain stops reading. It then waits in the background until the partition's sessions have
// ended, for at most limit.
func (p *Partition) BeginDrain(work context.Context, limit time.Duration) {
	p.mu.Lock()
	if p.drain != leases.NotDraining {
		p.mu.Unlock()
		return
	}
	p.drain, p.leaves = leases.Draining, time.Now().Add(limit)
	p.drains++
	current := p.drains
	p.mu.Unlock()
	p.tasks.Go(func() {
		p.StopReading(work)()
		if !p.awaitIdle(work, limit) {
			p.inbox.Log.Warn("partition released with sessions in progress", "partition", p.queue.Name, "after", limit)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.drain == leases.Draining && p.drains == current { // this worker has not acquired the partition again
			p.drain = leases.Drained
		}
	})
}

// DrainState implements [leases.Partition].
func (p *Partition) DrainState() leases.DrainState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drain
}

// Released records that this worker no longer owns the partition.
func (p *Partition) Released() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain = leases.NotDraining
}

// startSession counts a session. It returns false if this worker does not own the partition.
func (p *Partition) startSession() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading == nil || p.until.HasPassed(p.inbox.Clock.Now()) {
		return false
	}
	p.sessions++
	return true
}

func (p *Partition) endSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions--
	if p.sessions == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// awaitIdle waits until the partition has no session. It returns false after limit or if ctx ends.
func (p *Partition) awaitIdle(ctx context.Context, limit time.Duration) bool {
	p.mu.Lock()
	if p.sessions == 0 {
		p.mu.Unlock()
		return true
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// Queue implements [outbound.Destination].
func (p *Partition) Queue() *store.Queue { return p.queue }

// VisibilityTimeout implements [outbound.Destination].
func (p *Partition) VisibilityTimeout() time.Duration { return p.inbox.held.ControlTimeout }

// Announce implements [outbound.Destination].
func (p *Partition) Announce() {
	p.backlog.hint()
	p.Wake.Send()
}

// Claim implements [outbound.Destination]. It reserves slots for all of the messages or for none, so that
// they keep their order.
func (p *Partition) Claim(n int) int {
	if n > 0 && p.IsListening() && p.backlog.isEmpty() && p.inbox.buffer.tryReserve(n) {
		return n
	}
	return 0
}

// Unclaim implements [outbound.Destination].
func (p *Partition) Unclaim() { p.inbox.buffer.release(1) }

// Reserve implements [outbound.ControlQueue].
func (p *Partition) Reserve() bool { return p.IsListening() && p.inbox.buffer.tryReserve(1) }

// Arrive implements [outbound.ControlQueue].
func (p *Partition) Arrive(deliveries ...*inflight.Delivery) bool {
	r := p.CurrentReading()
	return r != nil && r.Run(func() { r.Arrive(deliveries...) })
}

// HasStart reports whether this process reads the queue and has the start message of an instance or has
// hidden it, or its session may have it.
func (p *Partition) HasStart(instance history.OrchestrationInstance) bool {
	return p.IsReading() && (p.inbox.hasStart(instance) || p.inbox.held.Hidden.HasStart(instance))
}

// Admit implements [outbound.Destination]. It delivers the messages in the order of their sequence numbers,
// before the messages that their sender sends next.
func (p *Partition) Admit(ctx context.Context, claimed []*inflight.Delivery) {
	inOrder := func(a, b *inflight.Delivery) int { return cmp.Compare(a.Env.SequenceNumber, b.Env.SequenceNumber) }
	slices.SortFunc(claimed, inOrder)
	if !p.Arrive(claimed...) {
		inflight.ReleaseAll(ctx, claimed)
	}
}

// Count adds the sessions to all.
func (p *Partition) Count(all inuse.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["sessions of partitions"] += p.sessions
}

// IsQuiet reports whether the queue has no visible message and every message that another worker
// had hidden would be visible by now.
func (p *Partition) IsQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && p.backlog.isEmpty() && time.Since(p.reading.since) > p.inbox.held.ControlTimeout
}

// oldestStart is the time from which the oldest pending instance of a partition may start, as of
// the last scan. An instance that has started since then counts until the next scan.
type oldestStart struct{ at atomic.Pointer[time.Time] }

func (o *oldestStart) Set(due time.Time) { o.at.Store(&due) }

// Age returns the waiting time of the instance at now, or 0 without one.
func (o *oldestStart) Age(now time.Time) time.Duration {
	if at := o.at.Load(); at != nil && !at.IsZero() {
		return max(0, now.Sub(*at))
	}
	return 0
}
