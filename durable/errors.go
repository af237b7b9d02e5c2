package durable

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// ErrTimeout says that a task was not complete in time.
var ErrTimeout = errors.New("timed out")

// A NonDeterminismError is the failure of an instance whose orchestrator does not do
// what it did before, so that its history cannot be replayed. errors.As finds it in the
// *[OrchestrationFailedError] that a client gets and the *[TaskFailedError] that a
// parent gets.
type NonDeterminismError struct {
	Message string // what the history has, and what the code did
}

// Error returns DurableTask's message for the case.
func (e *NonDeterminismError) Error() string { return e.Message }

// UsageError is the panic value of a durable call that is made in the wrong place or
// with an invalid argument. Inside an orchestrator it fails the instance: then errors.As
// finds it as it finds a [NonDeterminismError].
type UsageError struct {
	Sentence string // what was wrong, and what to do instead
}

// Error returns the sentence.
func (e *UsageError) Error() string { return e.Sentence }

// A TaskFailedError says that an activity, a sub-orchestration or an operation of
// an entity failed.
//
// If the error that it returned was given a name by [ErrorType] or [ErrorValue],
// in the registry of the program that failed and in this one's, errors.As and
// errors.Is find it:
//
//	var limit *LimitError
//	if errors.As(err, &limit) {
//		…
//	}
type TaskFailedError struct {
	Name string // of the activity, the orchestrator or the operation
	// TaskID is the number of the action that scheduled it; for something that
	// was tried several times, of the last.
	TaskID int
	// SubOrchestration says that it was a sub-orchestration, and no activity.
	SubOrchestration bool
	Entity           EntityID // whose operation it was; zero if it was none
	Type             string   // of the error, as its program names it; may be empty
	Message          string   // of the error
	// Details is a serialized .NET exception, from workers that send those.
	Details    string
	StackTrace string // empty if there is none
	// NonRetryable says that trying again is of no use.
	NonRetryable bool
	// Inner is the failure that caused this one, nil if there is none.
	Inner *history.FailureDetails

	reason  string                  // as it was received
	failure *history.FailureDetails // as it was received
	causes  []error                 // what could be made of it
}

// Error returns the words of durabletask-dotnet's TaskFailedException and
// EntityOperationFailedException.
func (e *TaskFailedError) Error() string {
	switch {
	case e.Entity != EntityID{}:
		return fmt.Sprintf("Operation '%s' of entity '%s' failed: %s", e.Name, e.Entity, e.Message)
	case e.SubOrchestration:
		return fmt.Sprintf("Sub-orchestration '%s' (#%d) failed with an unhandled exception: %s", e.Name, e.TaskID, e.Message)
	}
	return fmt.Sprintf("Task '%s' (#%d) failed with an unhandled exception: %s", e.Name, e.TaskID, e.Message)
}

// Unwrap returns the error that was returned elsewhere, if it has a name, and
// the failure that caused it, if there is one, as an error.
func (e *TaskFailedError) Unwrap() []error { return e.causes }

// FailureDetails returns the activity's failure. It becomes the inner failure
// of an orchestrator that returns e.
func (e *TaskFailedError) FailureDetails() *history.FailureDetails {
	if e.failure != nil {
		return e.failure
	}
	return &history.FailureDetails{ErrorType: e.Type, ErrorMessage: e.Message, InnerFailure: e.Inner, IsNonRetriable: e.NonRetryable}
}

// Reason returns the text with which the activity or sub-orchestration failed,
// without the sentence of [TaskFailedError.Error]. It becomes the output of an
// orchestrator that returns e, as in .NET, so that it reads the same however
// many orchestrators hand it on.
func (e *TaskFailedError) Reason() string {
	if e.reason != "" {
		return e.reason
	}
	return e.Message
}

// taskFailure returns the error for a task that failed.
func taskFailure(r *Registry, f *replay.Future) *TaskFailedError {
	e := &TaskFailedError{Name: f.Name(), TaskID: f.ID()}
	switch event := f.Event().(type) {
	case *history.TaskFailed:
		e.set(r, event.Reason, event.Details, event.Failure)
	case *history.SubOrchestrationInstanceFailed:
		e.SubOrchestration = true
		e.set(r, event.Reason, event.Details, event.Failure)
	}
	return e
}

// set fills in what was received. Reason is the message; from workers that
// propagate failures in .NET's way there is nothing else but details.
func (e *TaskFailedError) set(r *Registry, reason, details *string, failure *history.FailureDetails) {
	e.reason, e.Details, e.failure = valueOr(reason), valueOr(details), failure
	e.Message = e.reason
	if failure == nil {
		return
	}
	e.Type = failure.ErrorType
	e.StackTrace = valueOr(failure.StackTrace)
	e.NonRetryable = failure.IsNonRetriable
	e.Inner = failure.InnerFailure
	if failure.ErrorMessage != "" {
		e.Message = failure.ErrorMessage
	}
	e.causes = r.errors.causesOf(failure)
}

func valueOr(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
