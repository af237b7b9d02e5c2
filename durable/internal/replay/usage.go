package replay

import (
	"fmt"
	"runtime"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// A UsageError is what a durable call panics with when it is made where it
// must not be, or with what it cannot take.
type UsageError struct {
	Sentence string // what was wrong, and what to do instead
}

// Error returns the sentence.
func (e *UsageError) Error() string { return e.Sentence }

// A Guard is told of durable calls from goroutines that are none of the
// orchestrator's. Its methods are called from any goroutine.
type Guard interface {
	Note(err *UsageError)
	// Noted returns what the execution fails with, nil if nothing was noted.
	Noted() *UsageError
}

// Guard sets the guard. It is for the code to call before it decides anything.
func (x *Execution) Guard(g Guard) { x.guard = g }

// check panics unless the caller is the coroutine that is taking a step.
//
// Nobody recovers a panic on a goroutine that the orchestrator started: it would
// end the process, at each replay anew. Such a goroutine is ended instead, and
// the guard is told, so that the execution fails.
func (x *Execution) check(call string) {
	if x.group.Inside() && !x.group.Closing() {
		return
	}
	inside := coro.InRoutine()
	err := &UsageError{"durable: " + call + " was called outside of its orchestrator; a Context and its tasks are for the orchestrator's own code, " +
		"which must start no goroutines: use durable.Go for concurrent branches and activities for work that blocks"}
	if inside && x.group.Closing() {
		err.Sentence = "durable: " + call + " was called by a deferred call of an orchestrator that has ended or is taken out of memory; " +
			"make durable calls before returning, and compensate where an error is handled"
	}
	if !inside && x.guard != nil {
		x.guard.Note(err)
		runtime.Goexit()
	}
	panic(err)
}

// failNoted fails the execution if the guard noted something, unless it ends for
// another reason than what the orchestrator did.
func (x *Execution) failNoted() {
	if x.guard == nil || x.over || x.suspended || x.withheld || x.diverged ||
		x.complete != nil && x.complete.Status == history.Terminated {
		return
	}
	if err := x.guard.Noted(); err != nil {
		x.finish(history.Failed, FailureOf(err))
		x.group.Close()
	}
}

// Refuse panics with what is wrong with a call that was made where it may be.
func (x *Execution) Refuse(call, sentence string) {
	x.check(call)
	panic(&UsageError{sentence})
}

// checkLimit panics if no action may be added. The limit is the extension's,
// which ends loops that have no end (DurableOrchestrationContext.cs,
// IncrementActionsOrThrowException).
func (x *Execution) checkLimit() {
	if x.limit > 0 && x.actions.next >= x.limit {
		panic(&UsageError{fmt.Sprintf("Maximum amount of orchestration actions (%d) has been reached. "+
			"This value can be configured in host.json file as MaxOrchestrationActions.", x.limit)})
	}
}

// checkOwn panics unless all of fs are futures of x.
func (x *Execution) checkOwn(call string, fs []*Future) {
	for _, f := range fs {
		if f.x != x {
			x.Refuse(call, "durable: "+call+" was given a task of another orchestration; pass results on through inputs and outputs")
		}
	}
}
