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

// An event that a client raises in the process that owns the partition of the instance
// is handed over in memory, before it is in the partition's queue. The client's call
// returns once the event is in the history, or else in the queue: if the checkpoint that
// takes the event is not written within eventPatience, if it fails, or if the partition is
// lost.
//
// Of the events that one checkpoint takes one at least is in the queue before the history
// is written, unless the checkpoint takes another message (see [storeOne]). If this process
// dies then, that message comes again and the instance's row is repaired. So all events
// that come together cost two requests, instead of two each.
//
// So is the start of an instance, after its row (see [starter.startDirectly]). It costs no
// request besides: the row is pending until it says what the history does, and for one that
// is so for long the start is sent (see [overdueStarts]). .NET does not look for such rows. So if
// the first checkpoint sends anything to an entity, a child or another instance, its start is
// put into the queue before: a .NET worker may act on these messages before it has the start.

// eventPatience is how long a client waits for the checkpoint before the event is put into
// the queue.
const eventPatience = 100 * time.Millisecond

// A directEvent is what makes a delivery one of an event that may not be in its queue yet.
// The methods of a nil one are for all other deliveries.
type directEvent struct {
	d       *delivery
	out     *outgoing
	isStart bool       // of an instance, whose row is there
	outcome chan error // what the client's call returns

	// lock is held while the event is put, and protects the following. It is a channel
	// since tests in virtual time do not wait for a [sync.Mutex].
	lock      chan struct{}
	stored    bool // it is in its queue
	answered  bool // outcome has been sent
	committed bool // it is in the history
	inDoubt   bool // it may be in the history
	unknown   bool // it may be in its queue, and must not be put there again
}

// sendDirectly hands over what out is about, for which room is reserved, and waits until
// it is in the history or the queue. It returns false if a message has to be sent.
func (h *TaskHub) sendDirectly(ctx context.Context, out *outgoing) (taken bool, err error) {
	r := out.partition.currentReading()
	if _, isEvent := out.env.Message.Event.(*history.EventRaised); !isEvent || !out.claim || r == nil || visibilityDelay(out.env.Message, time.Now()) > 0 {
		return false, nil
	}
	e, _, err := h.newDirectEvent(out)
	if err != nil {
		h.sender.unclaim(out)
		return true, err
	}
	if !r.run(func() { r.arrive(e.d) }) {
		return false, nil
	}
	return true, e.await(ctx)
}

// await waits until the event is in the history or the queue, and puts it there if that
// takes long.
func (e *directEvent) await(ctx context.Context) error {
	timer := time.NewTimer(eventPatience)
	defer timer.Stop()
	select {
	case err := <-e.outcome:
		return err
	case <-ctx.Done():
		return maybeSent(context.Cause(ctx))
	case <-timer.C:
	}
	if err := e.store(ctx); err != nil {
		return maybeSent(err)
	}
	return <-e.outcome
}

// notSent returns the error of a call whose message could not be sent. If it is not known
// whether it was, the error says so.
func notSent(err error) error {
	if store.IsTransient(err) && !store.WasNotApplied(err) {
		return maybeSent(err)
	}
	return err
}

// errMaybeSent is the error of a call whose message may have been sent.
var errMaybeSent = errors.New("it may have arrived or not")

func maybeSent(err error) error { return fmt.Errorf("%w: %w", errMaybeSent, err) }

// newDirectEvent returns what hands over what out is about, and how many bytes its message
// would have.
func (h *TaskHub) newDirectEvent(out *outgoing) (e *directEvent, size int, err error) {
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
	d.until = d.receivedAt.Add(math.MaxInt64) // nobody else can receive it
	_, isStart := d.event().(*history.ExecutionStarted)
	d.raised = &directEvent{d: d, out: out, isStart: isStart, outcome: make(chan error, 1), lock: make(chan struct{}, 1)}
	return d.raised, len(text), nil
}

func (e *directEvent) unlock() { <-e.lock }

// answer ends the client's call. e.lock is held.
func (e *directEvent) answer(err error) {
	if !e.answered {
		e.answered = true
		e.outcome <- err
	}
}

// store puts the event into its queue, hidden, if it is not there.
func (e *directEvent) store(ctx context.Context) error {
	e.lock <- struct{}{}
	defer e.unlock()
	switch {
	case e.stored, e.answered:
		return nil
	case e.unknown:
		return errMaybeSent
	}
	if err := e.d.hub.sender.prepare(ctx, e.out); err != nil {
		return err
	}
	_, m, err := e.d.hub.sender.put(ctx, e.out)
	if err != nil {
		e.unknown = !store.WasNotApplied(err)
		return err
	}
	e.d.mu.Lock()
	e.d.msg, e.d.until = m, m.Until()
	e.d.mu.Unlock()
	e.d.hub.held.add(e.d)
	e.stored = true
	e.answer(nil)
	return nil
}

// handBackLate hands the delivery back when the worker that read the partition has stopped:
// what that takes is done within the client's call, whose context is ctx.
func (e *directEvent) handBackLate(ctx context.Context) {
	ctx, cancel := settling(ctx)
	defer cancel()
	e.d.handBack(ctx, 0)
}

// storeOne puts one of the events that a checkpoint takes into its queue, unless the
// checkpoint takes a message that is redelivered if this process dies. If the checkpoint sends
// messages to other instances, storeOne puts its start there.
func storeOne(ctx context.Context, taken []*delivery, sendsToOthers bool) error {
	for _, d := range taken {
		if sendsToOthers && d.raised != nil && d.raised.isStart {
			return d.raised.store(ctx)
		}
	}
	for _, d := range taken {
		if d.raised.comesAgain() {
			return nil
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return taken[0].raised.store(ctx)
}

// comesAgain reports whether the delivery comes again if this process dies. A start does
// for as long as the row is pending.
func (e *directEvent) comesAgain() bool {
	if e == nil || e.isStart {
		return true
	}
	e.lock <- struct{}{}
	defer e.unlock()
	return e.stored
}

// taken ends the client's call, whose event was taken, and reports whether it is in no
// queue.
func (e *directEvent) taken() bool {
	if e == nil {
		return false
	}
	e.lock <- struct{}{}
	defer e.unlock()
	e.answer(nil)
	return !e.stored
}

// noteCommitted notes that the event is in the history, and reports whether it is in no
// queue.
func (e *directEvent) noteCommitted() bool {
	if e == nil {
		return false
	}
	e.lock <- struct{}{}
	defer e.unlock()
	e.committed = true
	return !e.stored
}

// noteDoubt notes that the event may be in the history.
func (e *directEvent) noteDoubt() {
	if e == nil {
		return
	}
	e.lock <- struct{}{}
	defer e.unlock()
	e.inDoubt = true
}

// send puts the event into its queue, to be received after delay, if it is not there. It
// reports whether it was not. One that may be in the history is hidden for so long that
// its receiver looks for it there. That of a start does so in any case, and repairs the row:
// a start is put there even if it is in the history.
func (e *directEvent) send(ctx context.Context, delay time.Duration) bool {
	if e == nil {
		return false
	}
	e.lock <- struct{}{}
	defer e.unlock()
	switch {
	case e.stored:
		return false
	case e.isStart:
	case e.committed, e.answered:
		e.answer(nil)
		return true
	case e.unknown:
		e.answer(errMaybeSent)
		return true
	case e.inDoubt:
		delay = max(delay, e.d.lock)
	}
	h, out := e.d.hub, *e.out
	out.claim, out.delay = false, delay
	sent, err := h.sender.post(ctx, &out)
	if err != nil && e.isStart {
		h.overdue.soon.Give() // the row may be there, and nothing else
	}
	switch {
	case err != nil && e.inDoubt:
		err = maybeSent(err)
	case err != nil:
		err = notSent(err)
	case delay == 0:
		h.sender.wake(sent)
	}
	e.answer(err)
	return true
}
