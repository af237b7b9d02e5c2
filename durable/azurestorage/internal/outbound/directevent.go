package outbound

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Direct delivery
//
// A client may raise an event in the process that owns the instance's partition. The event is then delivered
// in memory. The client's call returns when the event is durable: a checkpoint has committed it to the
// history, or it is in the control queue. It is enqueued if no checkpoint commits it within [EnqueueAfter],
// if the checkpoint fails, or if the process loses the partition.
//
// A checkpoint may consume several directly delivered events. At least one message that it consumes
// must be in the queue before the history is written (see [EnqueueOne]). If the process then
// crashes, the queue redelivers that message, and its receiver repairs the instance's row. A batch
// of events therefore costs two requests in total.
//
// A start is delivered in the same way after its row is inserted (see start.go of the hub). It
// needs no message: the row stays Pending until the history is written, and a worker enqueues
// starts that stay Pending too long. .NET has no such search. Therefore, if
// the first checkpoint sends a message to an entity, a child or another instance, the start is
// enqueued before that message. A .NET worker could otherwise act on the message without ever
// receiving the start.

// EnqueueAfter is the time after which a client's call stops waiting for a checkpoint and enqueues
// the event.
const EnqueueAfter = 100 * time.Millisecond

// A Direct is the [inflight.Safety] of an event or a start that is delivered in memory and may not
// be in its queue.
type Direct struct {
	inflight.InQueue // applies once the message is enqueued
	sender           *Sender
	out              *Message
	isStart          bool       // a start; its row has been inserted
	outcome          chan error // the result of the client's call

	// mu guards the fields below and is held while the message is enqueued. It is a channel because
	// synctest does not treat a goroutine that waits for a sync.Mutex as idle.
	mu             chan struct{}
	enqueued       bool // the message is in its queue
	returned       bool // outcome has been sent
	committed      bool // the history contains the event
	maybeCommitted bool // the history write had no clear result
	maybeEnqueued  bool // the enqueue had no clear result; do not repeat it
}

// Deliver delivers a client's message in memory if possible, and enqueues it otherwise. It waits
// until the message is durable.
func (s *Sender) Deliver(ctx context.Context, p ControlQueue, message *provider.TaskMessage) error {
	out := &Message{To: p, Env: &wire.Envelope{Message: message, Sender: &history.OrchestrationInstance{}}}
	s.Reserve([]*Message{out})
	if delivered, err := s.sendDirectly(ctx, p, out); delivered {
		return err
	}
	sent, err := s.Post(ctx, out)
	if err != nil {
		return out.sendError(err)
	}
	s.HandOver(ctx, []Sent{sent})
	return nil
}

// sendDirectly delivers out in memory and waits until it is durable. The caller has reserved a slot
// for it. sendDirectly returns false if out cannot be delivered directly; the caller must then
// enqueue it.
func (s *Sender) sendDirectly(ctx context.Context, p ControlQueue, out *Message) (delivered bool, err error) {
	if _, isEvent := out.Env.Message.Event.(*history.EventRaised); !isEvent || !out.Claim || !p.IsReading() || visibilityDelay(out.Env.Message, time.Now()) > 0 {
		return false, nil
	}
	e, _, err := s.NewDirect(out)
	if err != nil {
		out.To.Unclaim()
		return true, err
	}
	if !p.Arrive(e.Delivery) {
		return false, nil
	}
	return true, e.Await(ctx)
}

// Await waits for the outcome. After [EnqueueAfter] it enqueues the event itself.
func (e *Direct) Await(ctx context.Context) error {
	timer := time.NewTimer(EnqueueAfter)
	defer timer.Stop()
	select {
	case err := <-e.outcome:
		return err
	case <-ctx.Done():
		return maybeSentError(context.Cause(ctx))
	case <-timer.C:
	}
	if err := e.Enqueue(ctx); err != nil {
		return maybeSentError(err)
	}
	return <-e.outcome
}

// ErrMaybeSent is the error of a call whose message may have been sent.
var ErrMaybeSent = errors.New("the message may have been sent")

func maybeSentError(err error) error { return fmt.Errorf("%w: %w", ErrMaybeSent, err) }

// NewDirect returns the direct delivery of out and the size in bytes of its encoded
// message.
func (s *Sender) NewDirect(out *Message) (e *Direct, size int, err error) {
	out.Env.SequenceNumber = s.NextNumber()
	out.Number = out.Env.SequenceNumber
	text, err := encode(out.Env)
	if err != nil {
		return nil, 0, err
	}
	asReceived, err := wire.DecodeEnvelopeJSON(text)
	if err != nil {
		return nil, 0, err
	}
	d := s.Held.Direct(out.To.Queue(), store.Message{DequeueCount: 1}, out.To.VisibilityTimeout(), asReceived, out.To.Unclaim)
	_, isStart := d.Event().(*history.ExecutionStarted)
	e = &Direct{InQueue: inflight.InQueue{Delivery: d}, sender: s, out: out, isStart: isStart, outcome: make(chan error, 1), mu: make(chan struct{}, 1)}
	d.Safety = e
	return e, len(text), nil
}

func (e *Direct) unlock() { <-e.mu }

// returnToClient ends the client's call. The caller holds e.mu.
func (e *Direct) returnToClient(err error) {
	if !e.returned {
		e.returned = true
		e.outcome <- err
	}
}

// Enqueue implements [inflight.Safety]. It enqueues the event, hidden, unless it is enqueued or the client's
// call has returned.
func (e *Direct) Enqueue(ctx context.Context) error {
	e.mu <- struct{}{}
	defer e.unlock()
	switch {
	case e.enqueued, e.returned:
		return nil
	case e.maybeEnqueued:
		return ErrMaybeSent
	}
	out := *e.out
	out.Claim = false // after an error the delivery still has its slot
	if err := e.sender.prepare(ctx, &out); err != nil {
		return err
	}
	out.Claim = true
	_, m, err := e.sender.put(ctx, &out)
	if err != nil {
		e.maybeEnqueued = out.mayBeSent
		return err
	}
	e.Delivery.BecomeHidden(m)
	e.enqueued = true
	e.returnToClient(nil)
	return nil
}

// AbandonAfterStop releases the delivery after the worker has stopped reading the partition. It
// runs within the client's call, whose context is ctx.
func (e *Direct) AbandonAfterStop(ctx context.Context) {
	ctx, cancel := Settling(ctx)
	defer cancel()
	e.Delivery.Release(ctx, 0)
}

// EnqueueOne enqueues one of the directly delivered events that a checkpoint consumes. It does
// nothing if the checkpoint consumes a message that is redelivered after a crash anyway. If the
// checkpoint sends messages to other instances and consumes a direct start, it enqueues the start.
func EnqueueOne(ctx context.Context, consumed []*inflight.Delivery, sendsToOthers bool) error {
	for _, d := range consumed {
		if sendsToOthers && d.Safety.IsAwaitedByOthers() {
			return d.Safety.Enqueue(ctx)
		}
	}
	isRedelivered := func(d *inflight.Delivery) bool { return d.Safety.IsRedelivered() }
	if len(consumed) == 0 || slices.ContainsFunc(consumed, isRedelivered) {
		return nil
	}
	return consumed[0].Safety.Enqueue(ctx)
}

// IsAwaitedByOthers implements [inflight.Safety]. A .NET worker does not search for starts without a message.
func (e *Direct) IsAwaitedByOthers() bool { return e.isStart }

// IsRedelivered implements [inflight.Safety]. A start is redelivered as long as its row is Pending.
func (e *Direct) IsRedelivered() bool {
	if e.isStart {
		return true
	}
	e.mu <- struct{}{}
	defer e.unlock()
	return e.enqueued
}

// Remove implements [inflight.Safety].
func (e *Direct) Remove(ctx context.Context) error {
	if !e.settleClient() {
		return nil
	}
	return e.InQueue.Remove(ctx)
}

// Acknowledge implements [inflight.Safety].
func (e *Direct) Acknowledge() { e.settleClient() }

// settleClient ends the client's call successfully. It reports whether the message is in its queue.
func (e *Direct) settleClient() (isEnqueued bool) {
	e.mu <- struct{}{}
	defer e.unlock()
	e.returnToClient(nil)
	return e.enqueued
}

// MarkCommitted implements [inflight.Safety].
func (e *Direct) MarkCommitted() {
	e.mu <- struct{}{}
	e.committed = true
	isEnqueued := e.enqueued
	e.unlock()
	if isEnqueued {
		e.InQueue.MarkCommitted()
	}
}

// MarkMaybeCommitted implements [inflight.Safety].
func (e *Direct) MarkMaybeCommitted() {
	e.mu <- struct{}{}
	defer e.unlock()
	e.maybeCommitted = true
}

// Release implements [inflight.Safety].
func (e *Direct) Release(ctx context.Context, delay time.Duration) {
	if !e.enqueueUnlessDone(ctx, delay) {
		e.InQueue.Release(ctx, delay)
	}
}

// enqueueUnlessDone enqueues the event for delivery after delay and ends the client's call with the
// result. It returns false if the event is in the queue already: the caller must then release the
// queue message. It does not enqueue an event that is committed, that may be
// enqueued already, or whose call has returned. If the history may contain the event, the message is
// hidden for at least the visibility timeout: a receiver compares only messages of this age, and
// redelivered ones, with the history. A start is enqueued even if it is committed: its receiver
// repairs the row.
func (e *Direct) enqueueUnlessDone(ctx context.Context, delay time.Duration) bool {
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
		e.returnToClient(ErrMaybeSent)
		return true
	case e.maybeCommitted:
		delay = max(delay, e.Delivery.VisibilityTimeout)
	}
	s, out := e.sender, *e.out
	out.Claim, out.Delay = false, delay
	err := s.redeliver(ctx, &out)
	if err != nil && e.isStart {
		s.StartLost.Send() // the row may exist without a start message
	}
	switch {
	case err != nil && e.maybeCommitted:
		err = maybeSentError(err)
	case err != nil:
		err = out.sendError(err)
	}
	e.returnToClient(err)
	return true
}
