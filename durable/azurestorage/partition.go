package azurestorage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A partition is a control queue and this worker's lease on it. The worker reads the queue while it
// has the lease and no other worker has requested it.
type partition struct {
	hub     *TaskHub
	queue   *store.Queue
	wake    store.Nudge // this process has sent a message to the queue
	backlog backlog

	oldestStart oldestStart

	mu       sync.Mutex // protects the following
	reading  *reading   // nil unless the queue is being read
	stopping bool       // the last reading is being stopped
	until    time.Time  // end of the lease
	sessions int        // dispatched and not released
	idle     chan struct{}
	drain    leases.DrainState
}

func newPartition(h *TaskHub, q *store.Queue) *partition {
	return &partition{hub: h, queue: q, wake: store.NewNudge()}
}

// Listen starts to read the queue, or continues to read it. The lease ends at until.
func (p *partition) Listen(work context.Context, until time.Time) {
	if p.hasLapsed() {
		defer p.hub.inbox.leaseRenewed()
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
	r := &reading{partition: p, ctx: ctx, work: work, cancel: cancel, since: time.Now()}
	p.reading = r
	r.spawn(func() { r.poll() })
	p.hub.overdue.rescan.Give()
	if p.hub.cfg.JumpStart.Enabled {
		r.spawn(func() { p.hub.starts.jumpStarts(r.ctx, p) })
	}
	if p.hub.cfg.Tracking && p == p.hub.partitions[0] {
		r.spawn(func() { p.hub.tracking.queue.Run(r.ctx, r.work, p.isListening) })
	}
	p.hub.log.Info("partition acquired", "event", "LeaseAcquisitionSucceeded", "partition", p.queue.Name, "workerId", p.hub.cfg.WorkerID)
	p.hub.meter.Partition(p.queue.Name, metering.Acquired)
	p.hub.meter.Owns(p.queue.Name, 1)
}

// isListening reports whether the queue is being read and the lease has not ended.
func (p *partition) isListening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && time.Now().Before(p.until)
}

// Name implements [leases.Partition]. It returns the name of the control queue.
func (p *partition) Name() string { return p.queue.Name }

// IsRead reports whether the queue is being read.
func (p *partition) IsRead() bool { return p.currentReading() != nil }

// currentReading returns the reading of the queue, or nil.
func (p *partition) currentReading() *reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading
}

// ownedSince returns when the reading of the queue started, or the zero time if the queue is not
// being read.
func (p *partition) ownedSince() time.Time {
	if r := p.currentReading(); r != nil {
		return r.since
	}
	return time.Time{}
}

// leaseEnd returns when the lease ends unless it is renewed.
func (p *partition) leaseEnd() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// hasLapsed reports whether the queue is being read although the lease has ended. The lease may
// still be renewed.
func (p *partition) hasLapsed() bool { return p.Expired(time.Now()) }

// Expired reports whether the queue is being read although the lease ended before now.
func (p *partition) Expired(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && !now.Before(p.until)
}

// StopReading stops reading the queue. After the call no message of the partition is delivered. The
// returned function may take long: it waits for a pending receive, and releases the undelivered
// messages. .NET leaves them hidden for minutes (OrchestrationSessionManager.cs, DrainAsync).
func (p *partition) StopReading(work context.Context) (finish func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reading
	if r == nil {
		return func() {}
	}
	p.reading, p.stopping = nil, true
	p.hub.meter.Owns(p.queue.Name, -1)
	return func() {
		r.stop()
		p.hub.inbox.releasePartition(work, p)
		p.mu.Lock()
		p.stopping = false
		p.mu.Unlock()
	}
}

// BeginDrain stops reading. It then waits in the background until the partition's sessions have
// ended, for at most limit.
func (p *partition) BeginDrain(work context.Context, limit time.Duration) {
	p.mu.Lock()
	if p.drain != leases.NotDraining {
		p.mu.Unlock()
		return
	}
	p.drain = leases.Draining
	p.mu.Unlock()
	p.hub.tasks.Go(func() {
		p.StopReading(work)()
		if !p.awaitIdle(work, limit) {
			p.hub.log.Warn("partition released with sessions in progress", "partition", p.queue.Name, "after", limit)
		}
		p.mu.Lock()
		p.drain = leases.Drained
		p.mu.Unlock()
	})
}

// DrainState implements [leases.Partition].
func (p *partition) DrainState() leases.DrainState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drain
}

// Released records that this worker no longer owns the partition.
func (p *partition) Released() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain = leases.NotDraining
}

// startSession counts a session. It returns false if this worker does not own the partition.
func (p *partition) startSession() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading == nil || !time.Now().Before(p.until) {
		return false
	}
	p.sessions++
	return true
}

func (p *partition) endSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions--
	if p.sessions == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// awaitIdle waits until the partition has no session. It returns false after limit or if ctx ends.
func (p *partition) awaitIdle(ctx context.Context, limit time.Duration) bool {
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

// visibilityDelay returns how long a message must be hidden when it is sent, in whole seconds
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay). The service limits it
// to a week. A worker that receives a message before it is due hides it again.
func visibilityDelay(m *provider.TaskMessage, now time.Time) time.Duration {
	due := provider.Due(*m)
	if due.IsZero() {
		return 0
	}
	return max(0, min(due.Sub(now), maxVisibility)).Truncate(time.Second)
}

// maxVisibility is the service's limit for the visibility timeout.
const maxVisibility = 7 * 24 * time.Hour

// claim reserves slots for n messages to the partition that will be delivered in memory. It returns
// false if they must be received from the queue.
func (p *partition) claim(n int) bool {
	if n == 0 || !p.isListening() {
		return false
	}
	return p.backlog.isEmpty() && p.hub.inbox.buffer.tryReserve(n)
}

// admit delivers claimed messages in the order of their sequence numbers, before the messages that
// their sender sends next. If the partition is no longer read, it releases them.
func (p *partition) admit(ctx context.Context, claimed []*delivery) {
	inOrder := func(a, b *delivery) int { return cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber) }
	slices.SortFunc(claimed, inOrder)
	r := p.currentReading()
	if r == nil || !r.run(func() { r.arrive(claimed...) }) {
		releaseAll(ctx, claimed)
	}
}

func (p *partition) count(all inuse.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["sessions of partitions"] += p.sessions
}

// isQuiet reports whether the queue has no visible message and every message that another worker
// had hidden would be visible by now.
func (p *partition) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && p.backlog.isEmpty() && time.Since(p.reading.since) > p.hub.held.controlLock()
}
