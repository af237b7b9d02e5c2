package azurestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// reading is a period in which this worker reads a partition's queue, with the goroutines that
// belong to it.
type reading struct {
	partition *partition
	ctx       context.Context // ends with the reading
	work      context.Context // outlives ctx, for work that must be completed
	cancel    context.CancelFunc
	since     time.Time

	mu      sync.Mutex // protects the following
	stopped bool
	done    sync.WaitGroup
}

// spawn runs f in a goroutine of the reading. It returns false without running f if the reading has
// ended.
func (r *reading) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false
	}
	r.done.Go(f)
	return true
}

// run runs f and delays the end of the reading until f returns. It returns false without running f
// if the reading has ended.
func (r *reading) run(f func()) bool {
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

// do runs f in a goroutine of the reading, or synchronously if the reading has ended. Call it only
// from goroutines of the reading or from a function that run runs.
func (r *reading) do(f func()) {
	if !r.spawn(f) {
		f()
	}
}

// stop ends the reading and waits for its goroutines.
func (r *reading) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.cancel()
	r.done.Wait()
}

// poll receives messages from the partition's queue until the reading ends. It does not cancel a
// pending receive: the service could still hide the messages, although no worker holds them.
func (r *reading) poll() {
	p := r.partition
	h := p.hub
	backoff := store.PollBackoff{Max: h.cfg.MaxQueuePollingInterval}
	for r.ctx.Err() == nil {
		h.held.awaitRenewals(r.ctx)
		if !p.isListening() { // the lease has ended and was not renewed
			pause.For(r.ctx, time.Second)
			continue
		}
		room := h.inbox.buffer.reserve(r.ctx, h.cfg.ControlQueueBatchSize, func() {
			h.log.Info("PendingOrchestratorMessageLimitReached", "partition", p.queue.Name, "threshold", h.cfg.ControlQueueBufferThreshold)
		})
		if room == 0 {
			return
		}
		before := p.backlog.snapshot()
		messages, err := p.queue.Receive(r.work, room, h.held.stretched(h.held.controlLock()))
		if err != nil {
			h.inbox.buffer.release(room)
			if r.work.Err() == nil {
				h.health.Failed("queues", err)
			}
			backoff.Wait(r.ctx, p.wake, p.queue.Name, 0, err)
			continue
		}
		h.health.OK("queues")
		taken := r.take(messages)
		h.inbox.buffer.release(room - taken)
		p.backlog.polled(before, len(messages), room)
		backoff.Wait(r.ctx, p.wake, p.queue.Name, len(messages), nil)
	}
}

// take delivers received messages. It returns the number of messages that occupy slots.
func (r *reading) take(messages []store.Message) (taken int) {
	p := r.partition
	h := p.hub
	held := h.held.hold(p.queue, messages, h.held.controlLock(), func() { h.inbox.buffer.release(1) })
	var fresh []*delivery
	for _, d := range held {
		if done, spent := h.held.isSpent(d); spent {
			r.do(func() { d.repair(r.work, done.repair) })
			continue
		}
		if err := h.decode(r.work, d); err != nil {
			r.do(func() { d.reject(r.work, err) })
			continue
		}
		if !r.isCommitted(d) {
			continue
		}
		h.meter.Received(p.queue.Name, queueAge(d))
		fresh = append(fresh, d)
	}
	slices.SortStableFunc(fresh, func(a, b *delivery) int {
		return cmp.Or(a.insertedOn.Compare(b.insertedOn), cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber))
	})
	r.arrive(fresh...)
	return len(held)
}

// decode decodes a message and fetches its blob if it has one. The error is a [wire.DamageError] if
// the message cannot be decoded. Any other error means that the blob could not be read.
func (h *TaskHub) decode(ctx context.Context, d *delivery) error {
	env, err := h.readEnvelope(ctx, d.text())
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.env = env
	d.mu.Unlock()
	if d.dequeueCount > 1 && !h.undecodable.has(d.queue.Name, d.id()) {
		h.log.Info("message redelivered after an earlier receive", d.attrs("attempt", d.dequeueCount)...)
	}
	return nil
}

// readEnvelope decodes a message text and fetches its blob if it has one. It returns the same
// errors as decode.
func (h *TaskHub) readEnvelope(ctx context.Context, text string) (*wire.Envelope, error) {
	env, err := wire.DecodeEnvelope(text)
	if err != nil {
		return nil, &wire.DamageError{Cause: err}
	}
	if name, batch := env.CompressedBlobName, env.Batch; name != "" {
		content, err := h.largeMessages.Read(ctx, name)
		if store.IsNotFound(err) {
			return nil, &wire.DamageError{Cause: fmt.Errorf("fetch large message %s: %w", name, errBlobGone)}
		}
		if err != nil {
			return nil, fmt.Errorf("fetch large message: %w", err)
		}
		if env, err = wire.DecodeEnvelopeJSON(content); err != nil {
			return nil, &wire.DamageError{Cause: fmt.Errorf("large message %s: %w", name, err)}
		}
		env.Batch = batch
	}
	if env.Message == nil {
		return nil, &wire.DamageError{Cause: errors.New("it has no task message")}
	}
	return env, nil
}

// arrive passes the due messages to the inbox together, so that one episode consumes all messages
// of an instance. It delays the others until they are due.
func (r *reading) arrive(deliveries ...*delivery) {
	var due []*delivery
	for _, d := range deliveries {
		if r.isDue(d) {
			due = append(due, d)
		}
	}
	r.partition.hub.inbox.add(r, due...)
}

// isDue reports whether a message may be delivered now. Otherwise it holds the message until it is
// due. If that takes longer than half of the visibility timeout, it hides the message until then and
// releases it. It rejects an activity, which does not belong into a control queue.
func (r *reading) isDue(d *delivery) bool {
	if _, isTask := d.event().(*history.TaskScheduled); isTask {
		r.do(func() { d.reject(r.work, &wire.DamageError{Cause: errors.New("it is an activity in a control queue")}) })
		return false
	}
	wait := time.Until(provider.Due(*d.env.Message))
	switch {
	case provider.Due(*d.env.Message).IsZero() || wait <= 0:
		return true
	case wait <= d.lock/2:
		// The service counts in whole seconds, so a timer can arrive up to one second early.
		r.do(func() {
			if !pause.For(r.ctx, wait) {
				d.release(r.work, 0)
				return
			}
			r.partition.hub.inbox.add(r, d)
		})
	default:
		r.do(func() { d.release(r.work, min(wait, maxVisibility).Truncate(time.Second)) })
	}
	return false
}

// isCommitted reports whether a received message may be delivered. It deletes a message of an
// entity's batch that became visible although the batch was not committed.
//
// The batch of an entity that was purged since is not committed either. The messages that the batch
// consumed are not deleted yet, because that happens after its own messages become visible. They
// are redelivered, and the new entity processes them as if it had been purged earlier.
func (r *reading) isCommitted(d *delivery) bool {
	if d.env.Batch == "" || d.env.Sender == nil {
		return true
	}
	h := r.partition.hub
	sentinel, err := h.instances.Histories.Row(r.work, d.env.Sender.InstanceID, wire.SentinelRowKey)
	if err != nil {
		d.abandonOnError(r.work, fmt.Errorf("find the batch of the entity that sent it: %w", err))
		return false
	}
	var counted wire.EntityBatches
	if sentinel != nil && sentinel.Columns != nil {
		counted = wire.ParseEntityBatches(sentinel.Columns.EntityBatches)
	}
	if counted.Counted(d.env.Batch) {
		return true
	}
	h.log.Info("DiscardingWorkItem", d.attrs("details", "the entity's batch that sent it was not committed")...)
	d.discard(r.work)
	return false
}
