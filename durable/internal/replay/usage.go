package replay

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// A UsageError is what a durable call panics with when it is made where it
// must not be, or with what it cannot take.
type UsageError struct {
	Sentence string // what was wrong, and what to do instead
}

// Error returns the sentence.
func (e *UsageError) Error() string { return e.Sentence }

// check panics unless the caller is the coroutine that is taking a step.
//
// A goroutine that the orchestrator started is told from the orchestrator by
// its stack, outside of replay only: a call that is new is always made there
// first.
func (x *Execution) check(call string) {
	switch {
	case x.group.Closing():
		panic(&UsageError{"durable: " + call + " was called by a deferred call of an orchestrator that has ended or is taken out of memory; " +
			"make durable calls before returning, and compensate where an error is handled"})
	case x.group.Running() == nil || !x.replaying && !coro.InRoutine():
		panic(&UsageError{"durable: " + call + " was called outside of its orchestrator; a Context and its tasks are for the orchestrator's own code, " +
			"which must start no goroutines: use durable.Go for concurrent branches and activities for work that blocks"})
	}
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
			panic(&UsageError{"durable: " + call + " was given a task of another orchestration; pass results on through inputs and outputs"})
		}
	}
}
