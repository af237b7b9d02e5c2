package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An unknownFunctionError says that this worker lacks a function, which another worker
// of the hub may have, or that it does not call it because the work is set aside, since
// it crashed the process, or because its code does something else than the history of
// the instance has.
type unknownFunctionError struct {
	kind, name, version string
	crashed, differs    bool
	stalled             bool   // its code did not yield and was given up
	refusal             string // the reason why this worker does not take the version; empty if it takes the version
}

// why says why something is held back, for the log.
func (e *unknownFunctionError) why() string {
	if e.crashed {
		return "a goroutine of it has ended the process with a panic, again and again. Mend the function, then suspend and resume the instance, or delete the file of crashes"
	}
	if e.differs {
		return "its code does something else than its history has. Deploy code that fits; hub why tells the difference"
	}
	if e.stalled {
		return "it does not yield. Correct the function and restart the process, or suspend and resume the instance to run it again"
	}
	if e.refusal != "" {
		return "this worker does not take its version. Start a worker that takes it; " + e.refusal
	}
	return "this worker does not know its function"
}

func (e *unknownFunctionError) Error() string {
	if e.crashed {
		return fmt.Sprintf("%s %q is set aside: %s", e.kind, e.name, e.why())
	}
	if e.differs {
		return fmt.Sprintf("%s %q does something else than the history of the instance has", e.kind, e.name)
	}
	if e.stalled {
		return fmt.Sprintf("%s %q does not yield", e.kind, e.name)
	}
	if e.refusal != "" {
		return fmt.Sprintf("this worker does not take version %q of %s %q: %s", e.version, e.kind, e.name, e.refusal)
	}
	if e.version != "" {
		return fmt.Sprintf("this worker has no %s named %q for version %s", e.kind, e.name, e.version)
	}
	return fmt.Sprintf("this worker has no %s named %q", e.kind, e.name)
}

// Failure returns the failure that goes into histories.
func (e *unknownFunctionError) Failure() *history.FailureDetails {
	return &history.FailureDetails{ErrorType: UnknownFunctionFailure, ErrorMessage: e.Error(), IsNonRetriable: true}
}

// UnknownFunctionFailure is the type of the failure of work whose function no worker
// had.
const UnknownFunctionFailure = "FunctionNotFound"

// unknownPolicy decides about work whose function the worker lacks.
type unknownPolicy struct {
	// after is how long work that has not begun waits for a worker that has the
	// function before it fails. Zero: for ever. Negative: not at all.
	after time.Duration
	// begun says that work that has begun fails then, too.
	begun bool
}

// fails reports whether work that could run since due fails at now.
func (p unknownPolicy) fails(due, now time.Time, begun bool) bool {
	return p.after != 0 && now.Sub(due) >= p.after && (p.begun || !begun)
}

// hold returns err, with the time at which the held work fails, if it will.
func (p unknownPolicy) hold(err error, due time.Time, begun bool) error {
	if p.after <= 0 || begun && !p.begun {
		return err
	}
	return &provider.HeldError{Cause: err, Until: due.Add(p.after + time.Second)} // storage may count in whole seconds
}

// failAll is the code of an unknown entity: each operation fails.
func (e *unknownFunctionError) failAll(_ context.Context, op *entity.Operation) entity.Result {
	return entity.Result{State: op.State, Failure: e.Failure()}
}

// dueOf returns when an instance could begin.
func dueOf(start *history.ExecutionStarted) time.Time {
	if start.ScheduledStart.After(start.Timestamp) {
		return start.ScheduledStart
	}
	return start.Timestamp
}

func hasTermination(events []history.Event) bool {
	return slices.ContainsFunc(events, func(e history.Event) bool { return e.Type() == history.TypeExecutionTerminated })
}

func hasResumption(messages []provider.TaskMessage) bool {
	return slices.ContainsFunc(messages, func(m provider.TaskMessage) bool { return m.Event.Type() == history.TypeExecutionResumed })
}

// lateRow is how long after an activity is scheduled the row of its instance may be
// older than that.
const lateRow = 5 * time.Minute
