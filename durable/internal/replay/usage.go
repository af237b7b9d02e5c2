package replay

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// A Guard handles misuse of the API for package durable. It creates the errors, and records
// calls from goroutines other than the orchestrator's. Its methods are safe for concurrent use.
type Guard interface {
	// UsageError returns an error of type [usageError]. The sentence states what was wrong and
	// what to do instead.
	UsageError(sentence string) error
	// RecordMisuse records err, the misuse of a goroutine that the orchestrator started.
	RecordMisuse(err error)
	// InStep reports whether the caller runs on the goroutine of a step.
	InStep() bool
	// FirstMisuse returns the error that the execution fails with, or nil if no misuse was
	// recorded.
	FirstMisuse() error
}

// usageError is a type name in histories. The panic value of a durable call in the wrong place
// or with an invalid argument has this type.
const usageError = "*durable.UsageError"

// usage rejects durable calls that are made in the wrong place or with invalid arguments.
type usage struct {
	x     *Execution
	guard Guard // nil: calls from other goroutines panic
	limit int   // maximum number of actions; 0 means no limit
}

// SetGuard sets the guard. The code calls it before its first decision.
func (u *usage) SetGuard(g Guard) { u.guard = g }

// Guard returns the guard, or nil if none is set.
func (u *usage) Guard() Guard { return u.guard }

// LimitActions limits the number of actions to n; the next one fails the execution. 0 means no
// limit. The code calls it before its first decision.
func (u *usage) LimitActions(n int) { u.limit = n }

// misuse returns the error of an invalid call.
func (u *usage) misuse(sentence string) error {
	if u.guard == nil {
		return errors.New(sentence)
	}
	return u.guard.UsageError(sentence)
}

// check panics unless the orchestrator's running coroutine calls it. The call counts as progress.
func (u *usage) check(call string) {
	u.checkPlace(call)
	u.x.ReportProgress()
}

// checkPlace panics unless the orchestrator's running coroutine calls it.
//
// On a goroutine that the orchestrator started, a panic would end the process, and again in
// every replay. checkPlace ends such a goroutine instead. It records the call with the guard,
// and the execution fails. On the goroutine of a step, a panic fails the step.
func (u *usage) checkPlace(call string) {
	if u.x.group.Inside() && !u.x.group.IsClosing() {
		return
	}
	inside := coro.InRoutine()
	if !inside && u.guard != nil && u.guard.InStep() {
		panic(u.misuse("durable: " + call + " was called inside a step; a step runs apart from its orchestrator: " +
			"return a value from the step, and make durable calls in the orchestrator"))
	}
	sentence := "durable: " + call + " was called outside of its orchestrator; a Context and its tasks are for the orchestrator's own code, " +
		"which must start no goroutines: use durable.Go for concurrent branches and activities for work that blocks"
	if inside && u.x.group.IsClosing() {
		sentence = "durable: " + call + " was called by a deferred call of an orchestrator that has ended or is being unloaded from memory; " +
			"make durable calls before returning, and compensate where an error is handled"
	}
	err := u.misuse(sentence)
	if !inside && u.guard != nil {
		u.guard.RecordMisuse(err)
		if u.x.observer != nil {
			u.x.observer.ForeignCall(err)
		}
		runtime.Goexit()
	}
	panic(err)
}

// failOnMisuse fails the execution if the guard recorded misuse. An end from outside, a suspension
// or a divergence takes precedence.
func (u *usage) failOnMisuse() {
	if u.guard == nil || u.x.over || u.x.suspended || u.x.deferredEnd || u.x.diverged ||
		u.x.complete != nil && u.x.complete.Status == history.Terminated {
		return
	}
	if err := u.guard.FirstMisuse(); err != nil {
		u.x.finish(history.Failed, FailureOf(err))
		u.x.group.Close()
	}
}

// PanicWithUsageError panics with the error of an invalid call. The sentence describes the error.
func (u *usage) PanicWithUsageError(call, sentence string) {
	u.check(call)
	panic(u.misuse(sentence))
}

// checkLimit panics if the execution has reached its maximum number of actions. The extension
// has the same limit, against infinite loops (DurableOrchestrationContext.cs,
// IncrementActionsOrThrowException).
func (u *usage) checkLimit() {
	if u.limit > 0 && u.x.actions.next >= u.limit {
		panic(u.misuse(fmt.Sprintf("Maximum amount of orchestration actions (%d) has been reached. "+
			"This value can be configured in host.json file as MaxOrchestrationActions.", u.limit)))
	}
}

// checkOwn panics unless all of fs belong to this execution.
func (u *usage) checkOwn(call string, fs []*Future) {
	for _, f := range fs {
		if f.x != u.x {
			u.PanicWithUsageError(call, "durable: "+call+" was given a task of another orchestration; pass results on through inputs and outputs")
		}
	}
}
