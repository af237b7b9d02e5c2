// Package coro runs cooperative coroutines, one at a time, in the order in which they became
// ready.
//
// It provides all concurrency of an orchestration. Coroutines use no channels or locks, and two
// coroutines of a [Group] never run at the same time. A Group that gets the same wake-ups in
// the same order therefore always takes the same steps.
//
// A Group is used by one goroutine, its owner, and by its coroutines while the owner is in
// [Group.Run] or [Group.Close].
package coro

import (
	"iter"
	"runtime"
)

// Group is a set of coroutines that run one at a time. The zero value is ready to use.
type Group struct {
	ready   []*Routine // ready coroutines from index head, oldest first
	head    int
	last    *Routine // the newest in the list of all coroutines that have not ended
	running *Routine
	stopped bool
	closing bool
	crash   *Crash
	trace   bool
}

// Routine is a coroutine of a Group.
type Routine struct {
	group      *Group
	f          func()
	next       func() (struct{}, bool)
	stop       func()
	yield      func(struct{}) bool
	ticket     Ticket
	parked     []uintptr // the stack of its last Park, if the group is traced
	prev, succ *Routine  // neighbors in the group's list
}

// Ticket identifies one call of [Group.Park] by a Routine. It is invalid after the wake-up, so
// that it cannot wake a later call.
type Ticket uint64

// Crash describes the end of a coroutine that did not return.
type Crash struct {
	Value  any    // the panic value; nil for Goexit
	Goexit bool   // it called runtime.Goexit
	Stack  []byte // of the coroutine, from the panic down
}

// Go adds a coroutine that runs f. It takes its first step in [Group.Run], after the ready
// coroutines.
func (g *Group) Go(f func()) {
	r := &Routine{group: g, f: f}
	r.next, r.stop = iter.Pull(r.run)
	if g.last != nil {
		r.prev, g.last.succ = g.last, r
	}
	g.last = r
	g.ready = append(g.ready, r)
}

// Run steps ready coroutines until all are parked or have returned, [Group.Stop] is called, or
// a coroutine crashes. It returns the crash, or nil.
func (g *Group) Run() *Crash {
	for g.head < len(g.ready) && !g.stopped {
		r := g.ready[g.head]
		g.ready[g.head] = nil
		g.head++
		g.running = r
		_, alive := r.next()
		g.running = nil
		if !alive {
			g.remove(r)
		}
		if g.crash != nil {
			return g.crash
		}
	}
	g.ready, g.head = g.ready[:0], 0
	return nil
}

// Stop makes [Group.Run] return after the current step. No coroutine takes another step.
func (g *Group) Stop() { g.stopped = true }

// Trace records where coroutines park, for [Routine.ParkedStack].
func (g *Group) Trace() { g.trace = true }

// ParkedStacks returns the stacks where coroutines are parked, newest coroutine first; nil if
// the group is not traced.
func (g *Group) ParkedStacks() (stacks [][]uintptr) {
	for r := g.last; r != nil; r = r.prev {
		if r.parked != nil {
			stacks = append(stacks, r.parked)
		}
	}
	return stacks
}

// Running returns the coroutine that is taking a step, or nil.
func (g *Group) Running() *Routine { return g.running }

// IsClosing reports whether [Group.Close] was called. Coroutines that run afterwards are being
// unwound.
func (g *Group) IsClosing() bool { return g.closing }

// Ticket returns the ticket for the next [Group.Park] of r.
func (r *Routine) Ticket() Ticket { return r.ticket }

// IsCurrent reports whether t is still valid: r has not been woken since.
func (r *Routine) IsCurrent(t Ticket) bool { return r.ticket == t }

// ParkedStack returns the stack of the last Park of r, as [runtime.Callers] does; nil if the
// group is not traced.
func (r *Routine) ParkedStack() []uintptr { return r.parked }

// Park suspends the running coroutine until [Group.Wake] is called with its current ticket. If
// that call came before Park, the other ready coroutines run first.
func (g *Group) Park() {
	r := g.running
	if g.trace {
		r.parked = make([]uintptr, 64)
		r.parked = r.parked[:runtime.Callers(2, r.parked)]
	}
	if !r.yield(struct{}{}) {
		// The group is closing. Unwind the coroutine, so that its deferred calls run. Goexit,
		// unlike a panic, cannot be recovered.
		runtime.Goexit()
	}
}

// Wake makes r ready and invalidates the ticket. It does nothing if t is not the current ticket
// of r.
func (g *Group) Wake(r *Routine, t Ticket) {
	if r.ticket != t {
		return
	}
	r.ticket++
	g.ready = append(g.ready, r)
}

// Close unwinds every coroutine that has not ended, newest first. Deferred calls run; recover
// returns nil. A coroutine that has taken no step does not run. Afterwards, nothing runs in the
// group.
func (g *Group) Close() {
	g.closing, g.stopped = true, true
	for g.last != nil {
		r := g.last
		g.remove(r)
		// stop passes a coroutine's Goexit to its caller. So it runs in a goroutine that may
		// end.
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.stop()
		}()
		<-done
	}
	g.ready, g.head = nil, 0
}

// run is the body of the coroutine.
//
//go:noinline
func (r *Routine) run(yield func(struct{}) bool) {
	r.yield = yield
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if r.group.closing {
			return // an error in a deferred call has no effect during unwinding
		}
		r.group.crash = &Crash{Value: v, Goexit: v == nil, Stack: stack()}
		if v == nil {
			// Goexit would also end the goroutine that resumed this coroutine: the owner's.
			// Parking here stops it until Close resumes the coroutine from another goroutine.
			yield(struct{}{})
		}
	}()
	r.f()
	returned = true
}

func (g *Group) remove(r *Routine) {
	if r.prev != nil {
		r.prev.succ = r.succ
	}
	if r.succ != nil {
		r.succ.prev = r.prev
	} else {
		g.last = r.prev
	}
	r.prev, r.succ = nil, nil
}

// Inside reports whether the caller is the coroutine that is taking a step. It examines the
// caller's stack. The stack's address is not enough: a goroutine may reuse the stack memory of
// a coroutine whose stack has grown.
func (g *Group) Inside() bool { return g.running != nil && InRoutine() }
