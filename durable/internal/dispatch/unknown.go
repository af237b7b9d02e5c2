package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An unknownFunctionError reports that this worker does not run a function. It lacks the
// function, which another worker of the hub may have; or one of the fields gives the reason.
type unknownFunctionError struct {
	kind, name, version string
	crashed, differs    bool   // set aside because it crashed the process; its code does not match the instance's history
	stalled             bool   // its code did not yield and was abandoned
	refusal             string // the reason why this worker does not accept the version; may be empty
}

// reason returns the reason for holding something back, for the log.
func (e *unknownFunctionError) reason() string {
	if e.crashed {
		return "a goroutine that it started repeatedly ended the process with a panic. Fix the function, then suspend and resume the instance, or delete the crash file"
	}
	if e.differs {
		return "its code does not match its history. Deploy matching code; hub why shows the difference"
	}
	if e.stalled {
		return "it does not yield. Fix the function and restart the process, or suspend and resume the instance to run it again"
	}
	if e.refusal != "" {
		return "this worker does not accept its version. Start a worker that does; " + e.refusal
	}
	return "this worker does not know its function"
}

func (e *unknownFunctionError) Error() string {
	if e.crashed {
		return fmt.Sprintf("%s %q is set aside: %s", e.kind, e.name, e.reason())
	}
	if e.differs {
		return fmt.Sprintf("%s %q does not match the history of the instance", e.kind, e.name)
	}
	if e.stalled {
		return fmt.Sprintf("%s %q does not yield", e.kind, e.name)
	}
	if e.refusal != "" {
		return fmt.Sprintf("this worker does not accept version %q of %s %q: %s", e.version, e.kind, e.name, e.refusal)
	}
	if e.version != "" {
		return fmt.Sprintf("this worker has no %s named %q for version %s", e.kind, e.name, e.version)
	}
	return fmt.Sprintf("this worker has no %s named %q", e.kind, e.name)
}

// Failure returns the failure that is stored in histories.
func (e *unknownFunctionError) Failure() *history.FailureDetails {
	return &history.FailureDetails{ErrorType: UnknownFunctionFailure, ErrorMessage: e.Error(), IsNonRetriable: true}
}

// UnknownFunctionFailure is the failure type of work whose function no worker had.
const UnknownFunctionFailure = "FunctionNotFound"

// unknownPolicy decides about work whose function the worker lacks.
type unknownPolicy struct {
	// after is the time after which work that has not started fails because no worker has its function. Zero
	// means never; a negative duration means immediately.
	after time.Duration
	// started also fails work that has started.
	started bool
}

// fails reports whether work that has been able to run since due fails at now.
func (p unknownPolicy) fails(due, now time.Time, started bool) bool {
	return p.after != 0 && now.Sub(due) >= p.after && (p.started || !started)
}

// hold returns err. If the held work will fail, it adds the time of the failure. Work that is set
// aside does not fail.
func (p unknownPolicy) hold(err error, due time.Time, started bool) error {
	unknown, ok := errors.AsType[*unknownFunctionError](err)
	if p.after <= 0 || started && !p.started || ok && unknown.crashed {
		return err
	}
	return &provider.RetryAtError{Cause: err, At: due.Add(p.after + time.Second)} // storage may count in whole seconds
}

// failAll is the code of an unknown entity: every operation fails.
func (e *unknownFunctionError) failAll(_ context.Context, op *entity.Operation) entity.Result {
	return entity.Result{State: op.State, Failure: e.Failure()}
}

// dueOf returns the earliest time at which an instance can start.
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

// lateRow is the maximum delay between the scheduling of an activity and the update of its
// instance's row.
const lateRow = 5 * time.Minute
