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

// reading is one period in which this worker reads a partition's queue, and the
// goroutines that belong to it.
type reading struct {
	partition *partition
	ctx       context.Context // ends with the reading
	work      context.Context // goes on after it, for work that is to be completed
	cancel    context.CancelFunc
	begun     time.Time

	mu      sync.Mutex // protects the following
	stopped bool
	done    sync.WaitGroup
}

// spawn runs f in a goroutine of the reading; false means that the reading has
// ended, and f does not run.
func (r *reading) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false
	}
	r.done.Go(f)
	return true
}

// run runs f before the reading ends; false means that it has ended, and f does not
// run.
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

// do runs f in a goroutine of the reading, or at once if the reading has ended.
// Only goroutines of the reading and what run runs may call it.
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

// poll reads the partition's queue until the reading ends. A receive that is
// under way then is not cut off: the messages would stay hidden although no worker
// has them.
func (r *reading) poll() {
	p := r.partition
	h := p.hub
	backoff := store.PollBackoff{Max: h.cfg.MaxQueuePollingInterval}
	for r.ctx.Err() == nil {
		h.held.awaitRenewals(r.ctx)
		if !p.isListening() { // the lease ran out and could not be renewed
			pause.For(r.ctx, time.Second)
			continue
		}
		room := h.inbox.buffer.take(r.ctx, h.cfg.ControlQueueBatchSize, func() {
			h.log.Info("PendingOrchestratorMessageLimitReached", "partition", p.queue.Name, "threshold", h.cfg.ControlQueueBufferThreshold)
		})
		if room == 0 {
			return
		}
		before := p.backlog.before()
		messages, err := p.queue.Receive(r.work, room, h.held.stretched(h.held.controlLock()))
		if err != nil {
			h.inbox.buffer.give(room)
			if r.work.Err() == nil {
				h.health.Failed("queues", err)
			}
			backoff.Wait(r.ctx, p.wake, p.queue.Name, 0, err)
			continue
		}
		h.health.OK("queues")
		taken := r.take(messages)
		h.inbox.buffer.give(room - taken)
		p.backlog.looked(before, len(messages), room)
		backoff.Wait(r.ctx, p.wake, p.queue.Name, len(messages), nil)
	}
}

// take makes deliveries of what was received, and returns how many take up
// room.
func (r *reading) take(messages []store.Message) (taken int) {
	p := r.partition
	h := p.hub
	held := h.held.take(p.queue, messages, h.held.controlLock(), func() { h.inbox.buffer.give(1) })
	var fresh []*delivery
	for _, d := range held {
		if done, spent := h.held.isSpent(d); spent {
			r.do(func() { d.repair(r.work, done.repair) })
			continue
		}
		if err := h.decode(r.work, d); err != nil {
			r.do(func() { d.leave(r.work, err) })
			continue
		}
		if !r.believe(d) {
			continue
		}
		h.meter.Received(p.queue.Name, ageOf(d))
		fresh = append(fresh, d)
	}
	slices.SortStableFunc(fresh, func(a, b *delivery) int {
		return cmp.Or(a.insertedOn.Compare(b.insertedOn), cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber))
	})
	r.arrive(fresh...)
	return len(held)
}

// decode reads a message's text, and its blob if it has one. The error is a
// [wire.DamageError] if the message cannot be decoded; else the blob could not be read.
func (h *TaskHub) decode(ctx context.Context, d *delivery) error {
	env, err := h.readEnvelope(ctx, d.text())
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.env = env
	d.mu.Unlock()
	if d.dequeueCount > 1 && !h.undecodable.knows(d.queue.Name, d.id()) {
		h.log.Info("message recovered: it was received before and is delivered again", d.attrs("attempt", d.dequeueCount)...)
	}
	return nil
}

// readEnvelope reads a message's text, and its blob if it has one. Errors are as those of
// decode.
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

// arrive passes the messages that are due to the inbox, together, so that one episode
// takes what came for an instance at once. The others follow when they are due.
func (r *reading) arrive(deliveries ...*delivery) {
	var due []*delivery
	for _, d := range deliveries {
		if r.isDue(d) {
			due = append(due, d)
		}
	}
	r.partition.hub.inbox.add(r, due...)
}

// isDue reports whether a message may be passed on now. If not, isDue holds it until it
// may be, or abandons it.
func (r *reading) isDue(d *delivery) bool {
	if _, isTask := d.event().(*history.TaskScheduled); isTask {
		r.do(func() { d.leave(r.work, &wire.DamageError{Cause: errors.New("an activity in a control queue")}) })
		return false
	}
	wait := time.Until(provider.Due(*d.env.Message))
	switch {
	case provider.Due(*d.env.Message).IsZero() || wait <= 0:
		return true
	case wait <= d.lock/2:
		// The service counts in seconds, so a timer comes up to one early.
		r.do(func() {
			if !pause.For(r.ctx, wait) {
				d.handBack(r.work, 0)
				return
			}
			r.partition.hub.inbox.add(r, d)
		})
	default:
		r.do(func() { d.handBack(r.work, min(wait, maxVisibility).Truncate(time.Second)) })
	}
	return false
}

// believe reports whether a message that was received is to be passed on. It deletes one
// of an entity's batch that did not count, which became visible by itself.
//
// A batch of an entity that was purged since does not count, either. What it took was not
// deleted, since that comes after its messages are shown: it comes again, and the entity
// that begins anew answers it, as if it had been purged before.
func (r *reading) believe(d *delivery) bool {
	if d.env.Batch == "" || d.env.Sender == nil {
		return true
	}
	h := r.partition.hub
	sentinel, err := h.instances.Histories.Row(r.work, d.env.Sender.InstanceID, wire.SentinelRowKey)
	if err != nil {
		d.abandonAfter(r.work, fmt.Errorf("find the batch of the entity that sent it: %w", err))
		return false
	}
	var counted wire.EntityBatches
	if sentinel != nil && sentinel.Columns != nil {
		counted = wire.ParseEntityBatches(sentinel.Columns.EntityBatches)
	}
	if counted.Counted(d.env.Batch) {
		return true
	}
	h.log.Info("DiscardingWorkItem", d.attrs("details", "the entity's batch that sent it did not count")...)
	d.discard(r.work)
	return false
}
