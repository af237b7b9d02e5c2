// Package coro runs cooperative coroutines, one at a time, in the order in
// which they became runnable.
//
// It is the whole of an orchestration's concurrency: no channels and no locks
// between coroutines, and no two of a [Group] ever run at once, so that a
// Group which is given the same wake-ups in the same order always takes the
// same steps.
//
// A Group is used by one goroutine, its owner, and by its coroutines while the
// owner is inside [Group.Run] or [Group.Close].
package coro

import (
	"iter"
	"runtime"
)

// A Group is a set of coroutines that share one logical thread. The zero value
// is ready to use.
type Group struct {
	ready   []*Routine // those that can take a step, oldest first, from head on
	head    int
	last    *Routine // of the list of all that have not ended, newest last
	running *Routine
	stopped bool
	closing bool
	crash   *Crash
	trace   bool
}

// A Routine is one coroutine of a Group.
type Routine struct {
	group      *Group
	f          func()
	next       func() (struct{}, bool)
	stop       func()
	yield      func(struct{}) bool
	ticket     Ticket
	parked     []uintptr // its stack where it parks, if the group is traced
	prev, succ *Routine  // neighbours in Group's list
}

// A Ticket stands for one stay of a Routine in [Group.Park]. It is worthless
// afterwards, so that an old one cannot wake a later stay.
type Ticket uint64

// A Crash says how a coroutine ended that did not return.
type Crash struct {
	Value  any    // what it panicked with; nil if Goexit
	Goexit bool   // it called runtime.Goexit
	Stack  []byte // of the coroutine, from the panic down
}

// Go adds a coroutine that runs f. It takes its first step in [Group.Run],
// after those that are ready already.
func (g *Group) Go(f func()) {
	r := &Routine{group: g, f: f}
	r.next, r.stop = iter.Pull(r.run)
	if g.last != nil {
		r.prev, g.last.succ = g.last, r
	}
	g.last = r
	g.ready = append(g.ready, r)
}

// Run steps ready coroutines until every one is parked or has returned, until
// [Group.Stop] was called, or until one crashed; then it returns how.
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

// Stop makes [Group.Run] return after the step that is being taken. No
// coroutine takes another.
func (g *Group) Stop() { g.stopped = true }

// Trace keeps where coroutines park, for [Routine.Parked].
func (g *Group) Trace() { g.trace = true }

// Parked returns the stacks of the coroutines that have parked, the newest first, if the group is
// traced.
func (g *Group) Parked() (stacks [][]uintptr) {
	for r := g.last; r != nil; r = r.prev {
		if r.parked != nil {
			stacks = append(stacks, r.parked)
		}
	}
	return stacks
}

// Running returns the coroutine that is taking a step, nil if none is.
func (g *Group) Running() *Routine { return g.running }

// Closing reports whether [Group.Close] was called. Coroutines that run then
// are being unwound.
func (g *Group) Closing() bool { return g.closing }

// Ticket returns the ticket for the next stay of r in [Group.Park].
func (r *Routine) Ticket() Ticket { return r.ticket }

// Holds reports whether t is still worth something: r has not been woken since.
func (r *Routine) Holds(t Ticket) bool { return r.ticket == t }

// Parked returns the stack where r parked last, as [runtime.Callers] does, nil if its
// group is not traced.
func (r *Routine) Parked() []uintptr { return r.parked }

// Park suspends the running coroutine until [Group.Wake] is called with its
// present ticket. If that has happened already, it only lets those run that
// are ready.
func (g *Group) Park() {
	r := g.running
	if g.trace {
		r.parked = make([]uintptr, 64)
		r.parked = r.parked[:runtime.Callers(2, r.parked)]
	}
	if !r.yield(struct{}{}) {
		// The group is closing: unwind this coroutine so that it runs its
		// deferred calls. Goexit, unlike a panic, cannot be recovered.
		runtime.Goexit()
	}
}

// Wake makes r ready if t is its present ticket, and voids the ticket.
func (g *Group) Wake(r *Routine, t Ticket) {
	if r.ticket != t {
		return
	}
	r.ticket++
	g.ready = append(g.ready, r)
}

// Close unwinds every coroutine that has not ended, the newest first: deferred
// calls run, recover sees nothing. A coroutine that took no step yet is
// dropped. Nothing runs in the group any more afterwards.
func (g *Group) Close() {
	g.closing, g.stopped = true, true
	for g.last != nil {
		r := g.last
		g.remove(r)
		// A coroutine's Goexit is passed on to the caller of stop, so each gets
		// a goroutine of its own to end. This one waits for it.
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
			return // what deferred calls do while they are unwound changes nothing
		}
		r.group.crash = &Crash{Value: v, Goexit: v == nil, Stack: stack()}
		if v == nil {
			// A Goexit goes on to the goroutine that resumed this coroutine, and would end
			// the owner's goroutine. Parking in the middle of it keeps it here
			// until Close gives it another goroutine to end.
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

// Inside reports whether the caller is the coroutine that is taking a step. The stack of the
// caller decides. Its address does not: a goroutine may get the former stack of a coroutine
// whose stack has grown.
func (g *Group) Inside() bool { return g.running != nil && InRoutine() }
