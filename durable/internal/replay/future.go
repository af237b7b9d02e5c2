package replay

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// A Future is something that an orchestrator can wait for. It is part of a durable.Task. A
// method of [Execution] ties it to an activity, a timer, an event or similar. The methods of a
// Future must only be called after that, except [Future.Execution].
type Future struct {
	x     *Execution
	id    int // number of the action
	kind  kind
	name  string
	event history.Event // the event that completed it; nil for a branch
	order int           // position among completed futures, from 1; 0 while not complete

	isStep bool // the task is a step

	first      waiter
	more       []waiter // waiters after first, oldest first
	collectors []collection
	wait       *eventWait // set only for external events
}

// A waiter is one wait of a coroutine.
type waiter struct {
	routine *coro.Routine
	ticket  coro.Ticket
}

// waits reports whether w is still waiting. Another future may have woken its coroutine.
func (w waiter) waits() bool { return w.routine != nil && w.routine.IsCurrent(w.ticket) }

// IsComplete reports whether f is complete.
func (f *Future) IsComplete() bool { return f.order > 0 }

// Event returns the event that completed f, or nil for a branch.
func (f *Future) Event() history.Event { return f.event }

// ID returns the number of the action behind f.
func (f *Future) ID() int { return f.id }

// IsStep reports whether f belongs to a step.
func (f *Future) IsStep() bool { return f.isStep }

// Name returns the name of the function, event or entity operation behind f.
func (f *Future) Name() string { return f.name }

// Execution returns the execution that f belongs to, or nil if f is not tied to anything yet.
func (f *Future) Execution() *Execution { return f.x }

// complete completes f with e, and wakes its waiters.
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

// subscribe makes f wake the running coroutine when f completes.
func (f *Future) subscribe() {
	r := f.x.group.Running()
	w := waiter{r, r.Ticket()}
	if len(f.more) == 0 && !f.first.waits() {
		f.first = w
		return
	}
	if len(f.more) == cap(f.more) {
		// Remove ended waits only when the slice is full: this costs no more than growing it.
		f.more = slices.DeleteFunc(f.more, func(w waiter) bool { return !w.waits() })
		if len(f.more) > cap(f.more)/2 {
			f.more = slices.Grow(f.more, len(f.more))
		}
	}
	f.more = append(f.more, w)
}

// isAwaited reports whether a coroutine waits for f.
func (f *Future) isAwaited() bool {
	return f.first.waits() || slices.ContainsFunc(f.more, waiter.waits) || len(f.collectors) > 0
}

// Await waits until f is complete.
func (f *Future) Await() {
	if !f.IsComplete() {
		f.x.check("Await")
		f.x.events.listen(f)
	}
	for !f.IsComplete() {
		f.subscribe()
		f.x.group.Park()
	}
	f.x.events.markRead(f)
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

// Ready reports whether f is complete. If f represents an external event, it first takes a
// buffered event. Ready does not count as progress: a loop that polls it never ends.
func (f *Future) Ready() bool {
	if !f.IsComplete() {
		f.x.checkPlace("Await")
		f.x.events.listen(f)
	}
	return f.IsComplete()
}

// String describes f for messages.
func (f *Future) String() string {
	switch f.kind {
	case taskKind:
		if f.isStep {
			return "step " + f.name
		}
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

// EntityResponse returns the answer to the entity call behind f.
func (f *Future) EntityResponse() (entity.Response, error) {
	return entity.ParseResponse(f.event.(*history.EventRaised).Input)
}

// IsAwaited reports whether f is incomplete and a coroutine waits for it.
func (f *Future) IsAwaited() bool { return !f.IsComplete() && f.isAwaited() }

// WaiterStacks returns the stacks of the coroutines that wait for f, in the format of
// [runtime.Callers]. It requires [Execution.TraceWaits].
func (f *Future) WaiterStacks() (stacks [][]uintptr) {
	for _, w := range append([]waiter{f.first}, f.more...) {
		if w.waits() {
			stacks = append(stacks, w.routine.ParkedStack())
		}
	}
	for _, c := range f.collectors {
		if c.to.routine != nil {
			stacks = append(stacks, c.to.routine.ParkedStack())
		}
	}
	return stacks
}

// WaitsSince returns the time of the episode that created f, which must represent an external
// event.
func (f *Future) WaitsSince() time.Time { return f.wait.since }

// HasFailed reports whether the event of f is the failure of an activity or a child. Failures
// of entity calls do not count.
func (f *Future) HasFailed() bool { return isFailure(f.event) }
