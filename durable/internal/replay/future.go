package replay

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// A Future is something that an orchestrator can wait for. It is part of a
// durable.Task, and is made to stand for something by a method of [Execution].
type Future struct {
	x     *Execution
	id    int // the action's number
	kind  kind
	name  string
	event history.Event // what completed it; nil for a branch
	order int           // its place among all that completed; 0 while it has not

	first      waiter
	more       []waiter // in the order in which they began to wait, after first
	collectors []collection
	wait       *eventWait // for external events
}

// A waiter is a coroutine's stay in a wait.
type waiter struct {
	routine *coro.Routine
	ticket  coro.Ticket
}

// waits reports whether w still waits: it may have been woken by another future.
func (w waiter) waits() bool { return w.routine != nil && w.routine.Holds(w.ticket) }

// IsComplete reports whether f is complete.
func (f *Future) IsComplete() bool { return f.order > 0 }

// Event returns the event that completed f, nil for a branch.
func (f *Future) Event() history.Event { return f.event }

// ID returns the number of the action that f stands for.
func (f *Future) ID() int { return f.id }

// Name returns the name of the function or event that f stands for.
func (f *Future) Name() string { return f.name }

// Execution returns the execution that f is part of, nil before it stands for
// anything.
func (f *Future) Execution() *Execution { return f.x }

// complete completes f with e, and wakes who waits for it.
func (f *Future) complete(e history.Event) {
	x := f.x
	x.finished++
	f.event, f.order = e, x.finished
	if f.first.routine != nil {
		x.group.Wake(f.first.routine, f.first.ticket)
	}
	for _, w := range f.more {
		x.group.Wake(w.routine, w.ticket)
	}
	f.first, f.more = waiter{}, nil
	for _, c := range f.collectors {
		c.to.add(c.index)
	}
	f.collectors = nil
}

// subscribe makes the running coroutine one that f wakes.
func (f *Future) subscribe() {
	r := f.x.group.Running()
	w := waiter{r, r.Ticket()}
	if len(f.more) == 0 && !f.first.waits() {
		f.first = w
		return
	}
	if len(f.more) == cap(f.more) {
		// Those that another future woke are taken out here, when there is no
		// room, so that they cost no more than growing does.
		f.more = slices.DeleteFunc(f.more, func(w waiter) bool { return !w.waits() })
		if len(f.more) > cap(f.more)/2 {
			f.more = slices.Grow(f.more, len(f.more))
		}
	}
	f.more = append(f.more, w)
}

// isAwaited reports whether some coroutine waits for f.
func (f *Future) isAwaited() bool {
	return f.first.waits() || slices.ContainsFunc(f.more, waiter.waits) || len(f.collectors) > 0
}

// Await waits until f is complete.
func (f *Future) Await() {
	if !f.IsComplete() {
		f.x.check("Await")
		f.x.events.renew(f)
	}
	for !f.IsComplete() {
		f.subscribe()
		f.x.group.Park()
	}
	f.x.events.read(f)
}

// earliest returns the index of the future that completed first, or -1.
func earliest(fs []*Future) int {
	first := -1
	for i, f := range fs {
		if f.IsComplete() && (first < 0 || f.order < fs[first].order) {
			first = i
		}
	}
	return first
}

// Ready reports whether f is complete, or could be at once: an external event
// came while f did not wait for it. It does not count as progress: a loop until f is
// ready never ends.
func (f *Future) Ready() bool {
	if !f.IsComplete() {
		f.x.checkPlace("Await")
		f.x.events.renew(f)
	}
	return f.IsComplete()
}

// String says what f stands for, for messages.
func (f *Future) String() string {
	switch f.kind {
	case taskKind:
		return "activity " + f.name
	case childKind:
		return "sub-orchestration " + f.name
	case raisedKind:
		return "event " + f.name
	case callKind:
		return "entity operation " + f.name
	default:
		return f.kind.String()
	}
}

// EntityResponse returns what answered the call of an entity that f stands for.
func (f *Future) EntityResponse() (entity.Response, error) {
	return entity.ParseResponse(f.event.(*history.EventRaised).Input)
}

// IsAwaited reports whether the orchestrator waits for f now.
func (f *Future) IsAwaited() bool { return !f.IsComplete() && f.isAwaited() }

// Waiters returns the stacks of the coroutines that wait for f, as [runtime.Callers]
// does, if [Execution.TraceWaits] was called.
func (f *Future) Waiters() (stacks [][]uintptr) {
	for _, w := range append([]waiter{f.first}, f.more...) {
		if w.waits() {
			stacks = append(stacks, w.routine.Parked())
		}
	}
	for _, c := range f.collectors {
		if c.to.routine != nil {
			stacks = append(stacks, c.to.routine.Parked())
		}
	}
	return stacks
}

// WaitsSince returns the time of the episode in which f, which stands for an external event,
// began to wait.
func (f *Future) WaitsSince() time.Time { return f.wait.since }

// HasFailed reports whether what f stands for failed.
func (f *Future) HasFailed() bool { return isFailure(f.event) }
