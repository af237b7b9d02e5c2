package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Reading is a period in which this worker reads a partition's queue, with the goroutines that
// belong to it.
type Reading struct {
	partition *Partition
	Context   context.Context // ends with the reading
	Work      context.Context // outlives Context, for work that must be completed
	cancel    context.CancelFunc
	since     time.Time

	mu      sync.Mutex // protects the following
	stopped bool
	done    sync.WaitGroup
}

// Spawn runs f in a goroutine of the reading. It returns false without running f if the reading has
// ended.
func (r *Reading) Spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false
	}
	r.done.Go(f)
	return true
}

// Run runs f and delays the end of the reading until f returns. It returns false without running f
// if the reading has ended.
func (r *Reading) Run(f func()) bool {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return false
	}
	r.done.Add(1)
	r.mu.Unlock()
	defer r.done.Done()
	f()
	return true
}

// do runs f in a goroutine of the reading, or synchronously if the reading has ended. Call it only from
// goroutines of the reading or from a function that Run runs.
func (r *Reading) do(f func()) {
	if !r.Spawn(f) {
		f()
	}
}

// stop ends the reading and waits for its goroutines.
func (r *Reading) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.cancel()
	r.done.Wait()
}

// poll receives messages from the partition's queue until the reading ends. It does not cancel a
// pending receive: the service could still hide the messages, although no worker holds them.
func (r *Reading) poll() {
	p := r.partition
	b := p.inbox
	backoff := store.PollBackoff{Max: p.polling.MaxInterval}
	for r.Context.Err() == nil {
		b.held.AwaitRenewals(r.Context)
		if !p.IsListening() { // the lease has ended and was not renewed
			pause.For(r.Context, time.Second)
			continue
		}
		room := b.buffer.reserve(r.Context, p.polling.BatchSize, func() {
			b.Log.Info("PendingOrchestratorMessageLimitReached", "partition", p.queue.Name, "threshold", b.buffer.size)
		})
		if room == 0 {
			return
		}
		before := p.backlog.snapshot()
		messages, err := p.queue.Receive(r.Work, room, b.held.Stretched(b.held.ControlTimeout))
		if err != nil {
			b.buffer.release(room)
			if r.Work.Err() == nil {
				b.Health.Failed("queues", err)
			}
			backoff.Wait(r.Context, p.Wake, p.queue.Name, 0, err)
			continue
		}
		b.Health.OK("queues")
		taken := r.deliver(messages)
		b.buffer.release(room - taken)
		p.backlog.polled(before, len(messages), room)
		backoff.Wait(r.Context, p.Wake, p.queue.Name, len(messages), nil)
	}
}

// deliver delivers received messages. It returns the number of messages that occupy slots.
func (r *Reading) deliver(messages []store.Message) (taken int) {
	p := r.partition
	b := p.inbox
	held := b.held.Hold(p.queue, messages, b.held.ControlTimeout, func() { b.buffer.release(1) })
	r.Arrive(r.accept(held)...)
	return len(held)
}

// accept decodes received messages and settles those that must not be delivered. It returns the others,
// the oldest first.
func (r *Reading) accept(received []*inflight.Delivery) (fresh []*inflight.Delivery) {
	p := r.partition
	b := p.inbox
	for _, d := range received {
		if repair, spent := b.held.IsSpent(d); spent {
			r.do(func() { b.disposer.repairSpent(r.Work, d, repair) })
			continue
		}
		if err := b.decoder.decode(r.Work, d); err != nil {
			r.do(func() { b.decoder.reject(r.Work, d, err) })
			continue
		}
		if !r.isCommitted(d) {
			continue
		}
		b.Meter.RecordReceived(p.queue.Name, inflight.QueueAge(d))
		fresh = append(fresh, d)
	}
	slices.SortStableFunc(fresh, func(a, b *inflight.Delivery) int {
		return cmp.Or(a.InsertedOn.Compare(b.InsertedOn), cmp.Compare(a.Env.SequenceNumber, b.Env.SequenceNumber))
	})
	return fresh
}

// receiveHidden receives the hidden messages of an instance again.
func (r *Reading) receiveHidden(instanceID string) []*inflight.Delivery {
	return r.accept(r.partition.inbox.held.HoldHidden(r.Work, instanceID, r.partition.queue))
}

// Arrive passes the due messages to the inbox together, so that one episode consumes all messages
// of an instance. It delays the others until they are due.
func (r *Reading) Arrive(deliveries ...*inflight.Delivery) {
	var due []*inflight.Delivery
	for _, d := range deliveries {
		if r.isDue(d) {
			due = append(due, d)
		}
	}
	r.partition.inbox.add(r, due...)
}

// isDue reports whether a message may be delivered now. Otherwise it holds the message until it is
// due. If that takes longer than half of the visibility timeout, it hides the message until then and
// releases it. It rejects an activity, which does not belong into a control queue.
func (r *Reading) isDue(d *inflight.Delivery) bool {
	if _, isTask := d.Event().(*history.TaskScheduled); isTask {
		r.do(func() {
			r.partition.inbox.decoder.reject(r.Work, d, &wire.DamageError{Cause: errors.New("it is an activity in a control queue")})
		})
		return false
	}
	wait := time.Until(provider.DueTime(*d.Env.Message))
	switch {
	case provider.DueTime(*d.Env.Message).IsZero() || wait <= 0:
		return true
	case wait <= d.VisibilityTimeout/2:
		// The service counts in whole seconds, so a timer can arrive up to one second early.
		r.do(func() {
			if !pause.For(r.Context, wait) {
				d.Release(r.Work, 0)
				return
			}
			r.partition.inbox.add(r, d)
		})
	default:
		r.do(func() { d.Release(r.Work, min(wait, store.MaxVisibilityTimeout).Truncate(time.Second)) })
	}
	return false
}

// isCommitted reports whether a received message may be delivered. It deletes a message of an
// entity's batch that became visible although the batch was not committed.
//
// A batch does not count as committed if its entity was purged later. The messages that the batch consumed
// are then still in the queue, because they are deleted after the batch's own messages become visible. They
// are redelivered, and a new entity processes them.
func (r *Reading) isCommitted(d *inflight.Delivery) bool {
	if d.Env.Batch == "" || d.Env.Sender == nil {
		return true
	}
	b := r.partition.inbox
	sentinel, err := b.instances.Histories.Row(r.Work, d.Env.Sender.InstanceID, wire.SentinelRowKey)
	if err != nil {
		d.AbandonOnError(r.Work, fmt.Errorf("find the batch of the entity that sent it: %w", err))
		return false
	}
	var counted wire.EntityBatches
	if sentinel != nil && sentinel.Columns != nil {
		counted = wire.ParseEntityBatches(sentinel.Columns.EntityBatches)
	}
	if counted.IsCommitted(d.Env.Batch) {
		return true
	}
	b.Log.Info("DiscardingWorkItem", d.Attrs("details", "the entity's batch that sent it was not committed")...)
	d.Discard(r.Work)
	return false
}
