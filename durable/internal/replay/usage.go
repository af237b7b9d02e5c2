package replay

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// A Guard is package durable's part in refusing calls: it makes the panic values, and
// records calls from goroutines other than the orchestrator's. Its methods are called from
// any goroutine.
type Guard interface {
	// UsageError returns an error of type [usageError] with a sentence that says what
	// was wrong, and what to do instead.
	UsageError(sentence string) error
	Note(err error)
	// Noted returns what the execution fails with, nil if nothing was noted.
	Noted() error
}

// usageError is the name in histories of the type of what a durable call panics with
// that is made in the wrong place or with an invalid argument.
const usageError = "*durable.UsageError"

// usage refuses durable calls that are made in the wrong place or with invalid arguments.
type usage struct {
	x     *Execution
	guard Guard // nil: what it would record panics
	limit int   // the most actions there may be; 0 for no limit
}

// SetGuard sets the guard. It is for the code to call before it decides anything.
func (u *usage) SetGuard(g Guard) { u.guard = g }

// Guard returns the guard, nil if there is none.
func (u *usage) Guard() Guard { return u.guard }

// LimitActions makes the action after the n-th fail the execution. It is for
// the code to call before it decides anything.
func (u *usage) LimitActions(n int) { u.limit = n }

// misuse returns what a call panics with, or fails the execution with.
func (u *usage) misuse(sentence string) error {
	if u.guard == nil {
		return errors.New(sentence)
	}
	return u.guard.UsageError(sentence)
}

// check panics unless the caller is the coroutine that is taking a step. The call counts
// as progress.
func (u *usage) check(call string) {
	u.checkPlace(call)
	u.x.Progressed()
}

// checkPlace panics unless the caller is the coroutine that is taking a step.
//
// A panic on a goroutine that the orchestrator started would end the process, at each
// replay anew. Such a goroutine is ended instead, and the guard records the call, so that
// the execution fails.
func (u *usage) checkPlace(call string) {
	if u.x.group.Inside() && !u.x.group.Closing() {
		return
	}
	inside := coro.InRoutine()
	sentence := "durable: " + call + " was called outside of its orchestrator; a Context and its tasks are for the orchestrator's own code, " +
		"which must start no goroutines: use durable.Go for concurrent branches and activities for work that blocks"
	if inside && u.x.group.Closing() {
		sentence = "durable: " + call + " was called by a deferred call of an orchestrator that has ended or is taken out of memory; " +
			"make durable calls before returning, and compensate where an error is handled"
	}
	err := u.misuse(sentence)
	if !inside && u.guard != nil {
		u.guard.Note(err)
		if u.x.observer != nil {
			u.x.observer.ForeignCall(err)
		}
		runtime.Goexit()
	}
	panic(err)
}

// failNoted fails the execution if the guard noted something, unless it ends for
// another reason than what the orchestrator did.
func (u *usage) failNoted() {
	if u.guard == nil || u.x.over || u.x.suspended || u.x.deferredEnd || u.x.diverged ||
		u.x.complete != nil && u.x.complete.Status == history.Terminated {
		return
	}
	if err := u.guard.Noted(); err != nil {
		u.x.finish(history.Failed, FailureOf(err))
		u.x.group.Close()
	}
}

// Refuse panics with what is wrong with a call that was made where it may be.
func (u *usage) Refuse(call, sentence string) {
	u.check(call)
	panic(u.misuse(sentence))
}

// checkLimit panics if no action may be added. The limit is the extension's,
// which ends loops that have no end (DurableOrchestrationContext.cs,
// IncrementActionsOrThrowException).
func (u *usage) checkLimit() {
	if u.limit > 0 && u.x.actions.next >= u.limit {
		panic(u.misuse(fmt.Sprintf("Maximum amount of orchestration actions (%d) has been reached. "+
			"This value can be configured in host.json file as MaxOrchestrationActions.", u.limit)))
	}
}

// checkOwn panics unless all of fs are futures of x.
func (u *usage) checkOwn(call string, fs []*Future) {
	for _, f := range fs {
		if f.x != u.x {
			u.Refuse(call, "durable: "+call+" was given a task of another orchestration; pass results on through inputs and outputs")
		}
	}
}
