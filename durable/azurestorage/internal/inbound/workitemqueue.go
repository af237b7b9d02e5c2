package inbound

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// ActivityQueue dispatches the messages of the work-item queue. A single goroutine receives, and only while a
// caller of Next waits, so that an idle process polls an empty queue once. It receives at most as many
// messages as there are free slots, so that none waits in this process.
type ActivityQueue struct {
	*monitor.Monitor
	queue       *store.Queue
	held        *inflight.Messages
	decoder     *Decoder
	max         int             // of concurrent activities
	maxInterval time.Duration   // longest pause between two polls of an empty queue
	tasks       *sync.WaitGroup // rejections in progress
	Wake        store.Nudge     // this process has sent a message to the queue

	mu      sync.Mutex // protects the following
	waiting int        // number of callers of Next
	free    int        // free slots of MaxConcurrentActivities; negative if some were claimed during a receive
	items   []*inflight.Delivery
	backlog backlog
	changed chan struct{} // closed when waiting, free, items or closed changes
	closed  bool
}

// NewActivityQueue returns a queue with the given number of concurrent activities.
func NewActivityQueue(slots int, maxInterval time.Duration, queue *store.Queue, decoder *Decoder, held *inflight.Messages, tasks *sync.WaitGroup) *ActivityQueue {
	return &ActivityQueue{
		Monitor: held.Monitor, queue: queue, held: held, decoder: decoder, tasks: tasks,
		max: slots, maxInterval: maxInterval,
		Wake: store.NewNudge(), free: slots, changed: make(chan struct{}),
		backlog: backlog{hints: 1}, // the queue may hold messages from before
	}
}

// signal wakes all waiters for a change. The caller holds q.mu.
func (q *ActivityQueue) signal() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Next waits for an activity to run.
func (q *ActivityQueue) Next(ctx context.Context) (*inflight.Delivery, error) {
	q.mu.Lock()
	q.waiting++
	q.signal()
	defer func() {
		q.waiting--
		q.mu.Unlock()
	}()
	for {
		if len(q.items) > 0 && !q.closed {
			d := q.items[0]
			q.items = q.items[1:]
			return d, nil
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
			q.mu.Lock()
		case <-ctx.Done():
			q.mu.Lock()
			return nil, context.Cause(ctx)
		}
	}
}

// slotGrace is the time for which a free slot is reserved for the next activity of the instance
// that used it. That activity can be claimed without a receive.
const slotGrace = time.Millisecond

// demand waits until there are free slots and waiting callers. It returns the number of messages to
// receive and the snapshot of the backlog, or 0 if ctx ends.
func (q *ActivityQueue) demand(ctx context.Context) (wanted, before int) {
	for full := false; ; {
		limited := false
		q.mu.Lock()
		wanted, before = 0, q.backlog.snapshot()
		changed := q.changed
		if q.waiting > len(q.items) {
			inFlight := q.max - q.free
			wanted = max(min(q.free, q.held.Limit()-inFlight, store.MaxReceive), 0)
			limited = wanted == 0 && q.free > 0
		}
		full = full || q.free <= 0
		q.mu.Unlock()
		if ctx.Err() != nil {
			return 0, 0
		}
		switch {
		case wanted == 0:
			awaitChange(ctx, changed, limited)
		case full:
			full = false
			pause.For(ctx, slotGrace)
		default:
			return wanted, before
		}
	}
}

// Fetch receives messages until ctx ends. It then releases those that were not dispatched.
func (q *ActivityQueue) Fetch(ctx, work context.Context) {
	backoff := store.PollBackoff{Max: q.maxInterval}
	for {
		q.held.AwaitRenewals(ctx)
		wanted, before := q.demand(ctx)
		if wanted == 0 {
			break
		}
		messages, err := q.queue.Receive(work, wanted, q.held.Stretched(q.held.WorkItemTimeout))
		if err != nil {
			if work.Err() == nil {
				q.Health.Failed("queues", err)
			}
			backoff.Wait(ctx, q.Wake, "the work items", 0, err)
			continue
		}
		q.Health.OK("queues")
		q.add(work, messages)
		q.backlog.polled(before, len(messages), wanted)
		backoff.Wait(ctx, q.Wake, "the work items", len(messages), nil)
	}
	q.mu.Lock()
	q.closed = true
	rest := q.items
	q.items = nil
	q.signal()
	q.mu.Unlock()
	inflight.ReleaseAll(work, rest)
}

// add adds received messages to the items.
func (q *ActivityQueue) add(work context.Context, messages []store.Message) {
	held := q.held.Hold(q.queue, messages, q.held.WorkItemTimeout, q.Unclaim)
	q.mu.Lock()
	q.free -= len(held)
	q.mu.Unlock()
	for _, d := range held {
		if _, spent := q.held.IsSpent(d); spent {
			q.tasks.Go(func() { d.RemoveDuplicate(work) })
			continue
		}
		err := q.decoder.decode(work, d)
		if err == nil {
			if _, isTask := d.Event().(*history.TaskScheduled); !isTask {
				err = &wire.DamageError{Cause: fmt.Errorf("%s in the work-item queue", d.Event().Type())}
			}
		}
		if err != nil {
			q.tasks.Go(func() { q.decoder.reject(work, d, err) })
			continue
		}
		q.Meter.RecordReceived(q.queue.Name, inflight.QueueAge(d))
		q.mu.Lock()
		q.items = append(q.items, d)
		q.signal()
		q.mu.Unlock()
	}
}

// Unclaim implements [outbound.Destination].
func (q *ActivityQueue) Unclaim() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	q.signal()
}

// Queue implements [outbound.Destination].
func (q *ActivityQueue) Queue() *store.Queue { return q.queue }

// VisibilityTimeout implements [outbound.Destination].
func (q *ActivityQueue) VisibilityTimeout() time.Duration { return q.held.WorkItemTimeout }

// Announce implements [outbound.Destination].
func (q *ActivityQueue) Announce() {
	q.backlog.hint()
	q.Wake.Send()
}

// Claim implements [outbound.Destination].
func (q *ActivityQueue) Claim(n int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || !q.backlog.isEmpty() || q.waiting == 0 && len(q.items) > 0 {
		return 0
	}
	n = max(min(n, q.free), 0)
	q.free -= n
	return n
}

// Admit implements [outbound.Destination].
func (q *ActivityQueue) Admit(ctx context.Context, claimed []*inflight.Delivery) {
	q.mu.Lock()
	closed := q.closed
	if !closed {
		q.items = append(q.items, claimed...)
		q.signal()
	}
	q.mu.Unlock()
	if closed {
		inflight.ReleaseAll(ctx, claimed)
	}
}

// Count adds the slots and activities in use to all.
func (q *ActivityQueue) Count(all inuse.Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all["reserved activity slots of the hub"], all["queued activities"] = q.max-q.free, len(q.items)
}
