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

// A partition is a control queue and this worker's lease on it. It is listening while the
// worker has the lease and no other worker has asked for it.
type partition struct {
	hub     *TaskHub
	queue   *store.Queue
	wake    store.Nudge // something was sent to the queue from here
	backlog backlog

	mu       sync.Mutex // protects the following
	reading  *reading   // nil unless listening
	stopping bool       // the last reading is being brought to its end
	until    time.Time  // when the lease ends
	sessions int        // handed out and not released
	idle     chan struct{}
	drain    leases.DrainState
}

func newPartition(h *TaskHub, q *store.Queue) *partition {
	return &partition{hub: h, queue: q, wake: store.NewNudge()}
}

// Listen begins to read the queue, or goes on if it does already. The lease ends at
// until.
func (p *partition) Listen(work context.Context, until time.Time) {
	if p.hasLapsed() {
		defer p.hub.inbox.resume()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
	if p.reading != nil || p.stopping {
		return // in the second case the next look at the table tries again
	}
	p.drain = leases.NotDraining
	p.backlog.add()
	ctx, cancel := context.WithCancel(work)
	r := &reading{partition: p, ctx: ctx, work: work, cancel: cancel, begun: time.Now()}
	p.reading = r
	r.spawn(func() { r.poll() })
	p.hub.overdue.soon.Give()
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

// isListening reports whether the queue may be read now.
func (p *partition) isListening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && time.Now().Before(p.until)
}

// Name returns the name of the control queue.
func (p *partition) Name() string { return p.queue.Name }

// IsRead reports whether the queue is being read.
func (p *partition) IsRead() bool { return p.currentReading() != nil }

// currentReading returns what reads the queue now, nil if nothing does.
func (p *partition) currentReading() *reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading
}

// ownedSince returns when the reading of the queue began, zero if nothing reads it.
func (p *partition) ownedSince() time.Time {
	if r := p.currentReading(); r != nil {
		return r.begun
	}
	return time.Time{}
}

// leaseEnd returns the time at which the lease ends unless it is renewed.
func (p *partition) leaseEnd() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// hasLapsed reports whether the queue is being read although the lease has ended. It may
// still be renewed.
func (p *partition) hasLapsed() bool { return p.Expired(time.Now()) }

// Expired reports whether the queue is being read although the lease ended before now.
func (p *partition) Expired(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && !now.Before(p.until)
}

// StopReading ends the reading of the queue. Messages that were received and not
// delivered are released; .NET lets them become visible by themselves after minutes
// (OrchestrationSessionManager.cs, DrainAsync). From the call on no message of the
// partition is delivered. The returned function does what takes time: it waits for a
// receive that is under way, and releases.
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
		p.hub.inbox.handBack(work, p)
		p.mu.Lock()
		p.stopping = false
		p.mu.Unlock()
	}
}

// BeginDrain stops reading and then waits, in the background, until the
// partition's sessions have ended, for limit at most.
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
			p.hub.log.Warn("partition is given up with sessions in progress", "partition", p.queue.Name, "after", limit)
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

// Released notes that the partition has no owner, or another one.
func (p *partition) Released() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain = leases.NotDraining
}

// sessionBegins counts a session. It returns false if this worker does not have the lease.
func (p *partition) sessionBegins() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading == nil || !time.Now().Before(p.until) {
		return false
	}
	p.sessions++
	return true
}

func (p *partition) sessionEnds() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions--
	if p.sessions == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// awaitIdle waits until no session of the partition is active.
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

// visibilityDelay returns for how long a message to an instance is hidden when it is sent
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs,
// GetVisibilityDelay). The service hides nothing for longer than a week, and
// counts in whole seconds; a worker that receives the message too early holds it
// back.
func visibilityDelay(m *provider.TaskMessage, now time.Time) time.Duration {
	due := provider.Due(*m)
	if due.IsZero() {
		return 0
	}
	return max(0, min(due.Sub(now), maxVisibility)).Truncate(time.Second)
}

// maxVisibility is the longest that a message can be hidden.
const maxVisibility = 7 * 24 * time.Hour

// claim reserves room for n messages to the partition that will be handed over in
// memory. It returns false if they have to be received from the queue.
func (p *partition) claim(n int) bool {
	if n == 0 || !p.isListening() {
		return false
	}
	return p.backlog.isEmpty() && p.hub.inbox.buffer.tryTake(n)
}

// admit takes claimed messages in as if they had been received now, before what their
// sender sends next. If the partition is not read any more, it releases them.
func (p *partition) admit(ctx context.Context, claimed []*delivery) {
	inOrder := func(a, b *delivery) int { return cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber) }
	slices.SortFunc(claimed, inOrder)
	r := p.currentReading()
	if r == nil || !r.run(func() { r.arrive(claimed...) }) {
		handBackAll(ctx, claimed)
	}
}

func (p *partition) count(all inuse.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["sessions of partitions"] += p.sessions
}

// isQuiet reports whether the queue holds no visible message, and has been read for so
// long that a message which another worker had hidden would have become visible.
func (p *partition) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reading != nil && p.backlog.isEmpty() && time.Since(p.reading.begun) > p.hub.held.controlLock()
}
