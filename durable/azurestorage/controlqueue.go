package azurestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// poll reads the partition's queue until the reading ends. A receive that is
// under way then is not cut off: what it brings would be hidden for its time and
// nobody would have it.
func (p *partition) poll(r *reading) {
	h := p.hub
	backoff := store.PollBackoff{Max: h.cfg.MaxQueuePollingInterval}
	for r.ctx.Err() == nil {
		h.awaitRenewals(r.ctx)
		if !p.isListening() { // the lease ran out and could not be renewed
			store.Sleep(r.ctx, time.Second)
			continue
		}
		room := h.inbox.buffer.take(r.ctx, h.cfg.ControlQueueBatchSize, func() {
			h.log.Info("PendingOrchestratorMessageLimitReached", "partition", p.queue.Name, "threshold", h.cfg.ControlQueueBufferThreshold)
		})
		if room == 0 {
			return
		}
		missed := p.missed()
		messages, err := p.queue.Receive(r.work, room, h.stretched(h.controlLock()))
		if err != nil {
			h.inbox.buffer.give(room)
			if r.work.Err() == nil {
				h.health.Failed("queues", err)
			}
			backoff.Wait(r.ctx, p.wake, p.queue.Name, 0, err)
			continue
		}
		h.health.OK("queues")
		taken := p.take(r, messages)
		h.inbox.buffer.give(room - taken)
		p.lookedAt(missed, len(messages), room)
		backoff.Wait(r.ctx, p.wake, p.queue.Name, len(messages), nil)
	}
}

// take makes deliveries of what was received, and returns how many take up
// room.
func (p *partition) take(r *reading, messages []store.Message) (taken int) {
	h := p.hub
	held := h.hold(p.queue, messages, h.controlLock(), func() { h.inbox.buffer.give(1) })
	var fresh []*delivery
	for _, d := range held {
		done, spent := h.held.isSpent(d)
		if spent && !done.untold {
			r.do(func() { d.removeAgain(r.work) })
			continue
		}
		if err := h.decode(r.work, d); err != nil {
			r.do(func() { d.leave(r.work, err) })
			continue
		}
		if spent {
			r.do(func() { d.makeUpFor(r.work, done.update) })
			continue
		}
		if !p.believe(r, d) {
			continue
		}
		h.meter.Received(p.queue.Name, ageOf(d))
		fresh = append(fresh, d)
	}
	slices.SortStableFunc(fresh, func(a, b *delivery) int {
		return cmp.Or(a.insertedOn.Compare(b.insertedOn), cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber))
	})
	p.arrive(r, fresh...)
	return len(held)
}

// hold makes deliveries of messages that were received, and has them kept hidden
// from others before the first is looked at: what is large may take long to fetch.
// Those that this process has already are left out.
func (h *TaskHub) hold(q *store.Queue, messages []store.Message, lock time.Duration, onSettled func()) (held []*delivery) {
	for _, m := range messages {
		d := h.newDelivery(q, m, lock, onSettled)
		if older := h.held.add(d); older != nil {
			h.log.Warn("DuplicateMessageDetected", older.attrs("details", "its lock had ended while it was here")...)
			continue
		}
		held = append(held, d)
	}
	return held
}

// decode reads a message's text, and its blob if it has one. If isUnreadable is false
// for the error, the blob could not be asked for.
func (h *TaskHub) decode(ctx context.Context, d *delivery) error {
	env, err := h.readEnvelope(ctx, d.text())
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.env = env
	d.mu.Unlock()
	if d.dequeueCount > 1 && !h.undecodable.knows(d.queue.Name, d.id) {
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

// arrive passes messages on whose time has come, together, so that what came for
// an instance at once is worked on at once; the others follow.
func (p *partition) arrive(r *reading, deliveries ...*delivery) {
	var due []*delivery
	for _, d := range deliveries {
		if p.isDue(r, d) {
			due = append(due, d)
		}
	}
	p.hub.inbox.add(r, p, due...)
}

// isDue reports whether a message may be passed on now. If not it is taken care of.
func (p *partition) isDue(r *reading, d *delivery) bool {
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
			if !store.Sleep(r.ctx, wait) {
				d.handBack(r.work, 0)
				return
			}
			p.hub.inbox.add(r, p, d)
		})
	default:
		r.do(func() { d.handBack(r.work, min(wait, maxVisibility).Truncate(time.Second)) })
	}
	return false
}
