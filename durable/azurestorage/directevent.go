package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Direct delivery
//
// A client may raise an event in the process that owns the instance's partition. The event is then
// delivered in memory. The client's call returns when the event is durable: a checkpoint has
// committed it to the history, or it is in the control queue. It is enqueued if no checkpoint
// commits it within enqueueAfter, if the checkpoint fails, or if the process loses the partition.
//
// A checkpoint may consume several directly delivered events. At least one message that it consumes
// must be in the queue before the history is written (see [enqueueOne]). If the process then
// crashes, the queue redelivers that message, and its receiver repairs the instance's row. A batch
// of events therefore costs two requests in total.
//
// A start is delivered in the same way after its row is inserted (see [starter.startDirectly]). It
// needs no message: the row stays Pending until the history is written, and a worker enqueues
// starts that stay Pending too long (see [overdueStarts]). .NET has no such search. Therefore, if
// the first checkpoint sends a message to an entity, a child or another instance, the start is
// enqueued before that message. A .NET worker could otherwise act on the message without ever
// receiving the start.

// enqueueAfter is the time after which a client's call stops waiting for a checkpoint and enqueues
// the event.
const enqueueAfter = 100 * time.Millisecond

// A directDelivery tracks an event or a start that is delivered in memory and may not be in its
// queue. Its methods accept a nil receiver, for a delivery that was received from a queue.
type directDelivery struct {
	d       *delivery
	out     *outgoing
	isStart bool       // a start; its row has been inserted
	outcome chan error // the result of the client's call

	// mu guards the fields below and is held while the message is enqueued. It is a channel because
	// synctest does not treat a goroutine that waits for a sync.Mutex as idle.
	mu             chan struct{}
	enqueued       bool // the message is in its queue
	returned       bool // outcome has been sent
	committed      bool // the history contains the event
	maybeCommitted bool // the history write had no clear result
	maybeEnqueued  bool // the enqueue had no clear result; do not repeat it
}

// sendDirectly delivers out in memory and waits until it is durable. The caller has reserved a slot
// for it. sendDirectly returns false if out cannot be delivered directly; the caller must then
// enqueue it.
func (h *TaskHub) sendDirectly(ctx context.Context, out *outgoing) (delivered bool, err error) {
	r := out.partition.currentReading()
	if _, isEvent := out.env.Message.Event.(*history.EventRaised); !isEvent || !out.claim || r == nil || visibilityDelay(out.env.Message, time.Now()) > 0 {
		return false, nil
	}
	e, _, err := h.newDirectDelivery(out)
	if err != nil {
		h.sender.unclaim(out)
		return true, err
	}
	if !r.run(func() { r.arrive(e.d) }) {
		return false, nil
	}
	return true, e.await(ctx)
}

// await waits for the outcome. After enqueueAfter it enqueues the event itself.
func (e *directDelivery) await(ctx context.Context) error {
	timer := time.NewTimer(enqueueAfter)
	defer timer.Stop()
	select {
	case err := <-e.outcome:
		return err
	case <-ctx.Done():
		return maybeSentError(context.Cause(ctx))
	case <-timer.C:
	}
	if err := e.enqueueHidden(ctx); err != nil {
		return maybeSentError(err)
	}
	return <-e.outcome
}

// sendError returns the error of a failed send. It wraps errMaybeSent if the message may have been
// stored.
func sendError(err error) error {
	if store.IsTransient(err) && !store.WasNotApplied(err) {
		return maybeSentError(err)
	}
	return err
}

// errMaybeSent is the error of a call whose message may have been sent.
var errMaybeSent = errors.New("the message may have been sent")

func maybeSentError(err error) error { return fmt.Errorf("%w: %w", errMaybeSent, err) }

// newDirectDelivery returns the direct delivery of out and the size in bytes of its encoded
// message.
func (h *TaskHub) newDirectDelivery(out *outgoing) (e *directDelivery, size int, err error) {
	out.env.SequenceNumber = h.sender.sequence.Add(1)
	out.number = out.env.SequenceNumber
	text, err := encode(out.env)
	if err != nil {
		return nil, 0, err
	}
	d := h.held.newDelivery(out.queue, store.Message{DequeueCount: 1}, h.held.controlLock(), func() { h.sender.unclaim(out) })
	if d.env, err = wire.DecodeEnvelopeJSON(text); err != nil {
		return nil, 0, err
	}
	d.claimed, d.insertedOn, d.age = true, d.receivedAt, 0
	d.until = d.receivedAt.Add(math.MaxInt64) // it is in no queue, so no other worker can receive it
	_, isStart := d.event().(*history.ExecutionStarted)
	d.direct = &directDelivery{d: d, out: out, isStart: isStart, outcome: make(chan error, 1), mu: make(chan struct{}, 1)}
	return d.direct, len(text), nil
}

func (e *directDelivery) unlock() { <-e.mu }

// returnToClient ends the client's call. The caller holds e.mu.
func (e *directDelivery) returnToClient(err error) {
	if !e.returned {
		e.returned = true
		e.outcome <- err
	}
}

// enqueueHidden enqueues the event, hidden, unless it is enqueued or the client's call has
// returned.
func (e *directDelivery) enqueueHidden(ctx context.Context) error {
	e.mu <- struct{}{}
	defer e.unlock()
	switch {
	case e.enqueued, e.returned:
		return nil
	case e.maybeEnqueued:
		return errMaybeSent
	}
	if err := e.d.hub.sender.prepare(ctx, e.out); err != nil {
		return err
	}
	_, m, err := e.d.hub.sender.put(ctx, e.out)
	if err != nil {
		e.maybeEnqueued = !store.WasNotApplied(err)
		return err
	}
	e.d.mu.Lock()
	e.d.msg, e.d.until = m, m.Until()
	e.d.mu.Unlock()
	e.d.hub.held.add(e.d)
	e.enqueued = true
	e.returnToClient(nil)
	return nil
}

// abandonAfterStop releases the delivery after the worker has stopped reading the partition. It
// runs within the client's call, whose context is ctx.
func (e *directDelivery) abandonAfterStop(ctx context.Context) {
	ctx, cancel := settling(ctx)
	defer cancel()
	e.d.release(ctx, 0)
}

// enqueueOne enqueues one of the directly delivered events that a checkpoint consumes. It does
// nothing if the checkpoint consumes a message that is redelivered after a crash anyway. If the
// checkpoint sends messages to other instances and consumes a direct start, it enqueues the start.
func enqueueOne(ctx context.Context, consumed []*delivery, sendsToOthers bool) error {
	for _, d := range consumed {
		if sendsToOthers && d.direct != nil && d.direct.isStart {
			return d.direct.enqueueHidden(ctx)
		}
	}
	for _, d := range consumed {
		if d.direct.isRedelivered() {
			return nil
		}
	}
	if len(consumed) == 0 {
		return nil
	}
	return consumed[0].direct.enqueueHidden(ctx)
}

// isRedelivered reports whether the message is delivered again after a crash of this process. A
// start is, as long as its row is Pending.
func (e *directDelivery) isRedelivered() bool {
	if e == nil || e.isStart {
		return true
	}
	e.mu <- struct{}{}
	defer e.unlock()
	return e.enqueued
}

// acknowledge ends the client's call successfully. It reports whether the event is in no queue and
// the caller has nothing to delete.
func (e *directDelivery) acknowledge() bool {
	if e == nil {
		return false
	}
	e.mu <- struct{}{}
	defer e.unlock()
	e.returnToClient(nil)
	return !e.enqueued
}

// markCommitted records that the history contains the event. It reports whether the event is in no
// queue.
func (e *directDelivery) markCommitted() bool {
	if e == nil {
		return false
	}
	e.mu <- struct{}{}
	defer e.unlock()
	e.committed = true
	return !e.enqueued
}

// markMaybeCommitted records that the history may contain the event.
func (e *directDelivery) markMaybeCommitted() {
	if e == nil {
		return
	}
	e.mu <- struct{}{}
	defer e.unlock()
	e.maybeCommitted = true
}

// enqueueUnlessDone enqueues the event for delivery after delay and ends the client's call with the
// result. It returns false if the event is in the queue already or if e is nil: the caller must
// then release the queue message. It does not enqueue an event that is committed, that may be
// enqueued already, or whose call has returned. If the history may contain the event, the message is
// hidden for at least the visibility timeout: a receiver compares only messages of this age, and
// redelivered ones, with the history. A start is enqueued even if it is committed: its receiver
// repairs the row.
func (e *directDelivery) enqueueUnlessDone(ctx context.Context, delay time.Duration) bool {
	if e == nil {
		return false
	}
	e.mu <- struct{}{}
	defer e.unlock()
	switch {
	case e.enqueued:
		return false
	case e.isStart:
	case e.committed, e.returned:
		e.returnToClient(nil)
		return true
	case e.maybeEnqueued:
		e.returnToClient(errMaybeSent)
		return true
	case e.maybeCommitted:
		delay = max(delay, e.d.lock)
	}
	h, out := e.d.hub, *e.out
	out.claim, out.delay = false, delay
	sent, err := h.sender.post(ctx, &out)
	if err != nil && e.isStart {
		h.overdue.rescan.Give() // the row may exist without a start message
	}
	switch {
	case err != nil && e.maybeCommitted:
		err = maybeSentError(err)
	case err != nil:
		err = sendError(err)
	case delay == 0:
		h.sender.wake(sent)
	}
	e.returnToClient(err)
	return true
}
