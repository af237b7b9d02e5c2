package durable

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// ErrTimeout means that a task did not complete in time.
var ErrTimeout = errors.New("timed out")

// ErrInstanceNotFound means that no instance has the given ID.
var ErrInstanceNotFound = provider.ErrInstanceNotFound

// ErrInstanceExists means that an instance with the given ID exists and may not be
// replaced. The error is an *[InstanceExistsError], which has the status of that
// instance.
var ErrInstanceExists = provider.ErrInstanceExists

// InstanceExistsError is the error of a start whose instance ID is in use.
type InstanceExistsError = provider.InstanceExistsError

// ErrInstanceChanged means that the instance has changed since it was read.
var ErrInstanceChanged = provider.ErrInstanceChanged

// ErrContinuation means that the continuation of a query was not issued by this hub.
var ErrContinuation = provider.ErrContinuation

// ErrInstanceEnded means that the instance has completed, failed or been terminated and
// accepts no more messages.
var ErrInstanceEnded = errors.New("instance has ended")

// ErrNotSupported means that the provider of the hub does not support the operation.
var ErrNotSupported = provider.ErrNotSupported

// ErrLocksReleased means that the instance, or a failed child of it, cannot be rewound,
// because it held locks of entities until it ended.
var ErrLocksReleased = provider.ErrLocksReleased

// NonDeterminismError is the failure of an instance whose orchestrator deviates from
// its history, so the history cannot be replayed. errors.As finds it in the
// *[OrchestrationFailedError] that a client gets and in the *[TaskFailedError] that a
// parent gets.
type NonDeterminismError struct {
	Message string // describes the recorded action and the action of the code
}

// Error returns DurableTask's message.
func (e *NonDeterminismError) Error() string { return e.Message }

// UsageError is the panic value of a durable call that is made in the wrong place or
// with an invalid argument. In an orchestrator it fails the instance; errors.As then
// finds it like a [NonDeterminismError].
type UsageError struct {
	Message string // describes the mistake and its fix
}

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }

// TaskFailedError is the error of a failed activity, step, sub-orchestration or entity
// operation.
//
// If the original error has a name ([ErrorType], [ErrorValue]) in the registry of its
// program and in this program's registry, errors.As and errors.Is find it:
//
//	var limit *LimitError
//	if errors.As(err, &limit) {
//		…
//	}
type TaskFailedError struct {
	Name string // name of the activity, the step, the orchestrator or the operation
	// TaskID is the number of the action that scheduled the task. After retries it is
	// the number of the last attempt.
	TaskID int
	// SubOrchestration reports whether the task is a sub-orchestration.
	SubOrchestration bool
	Entity           EntityID // the entity whose operation failed; zero for other tasks
	Type             string   // type name of the error in its program; may be empty
	Message          string   // message of the error
	// Details is a serialized .NET exception, if the worker sends those.
	Details    string
	StackTrace string // may be empty
	// NonRetryable reports that retrying is useless.
	NonRetryable bool
	// Inner is the failure that caused this one, or nil.
	Inner *history.FailureDetails

	reason  string                  // as received
	failure *history.FailureDetails // as received
	causes  []error                 // see Unwrap
}

// Error returns the message of durabletask-dotnet's TaskFailedException or
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

// Unwrap returns the original error and the failure that caused it, if there is one. The
// original error is included if it has a name or if this package defines it.
func (e *TaskFailedError) Unwrap() []error { return e.causes }

// FailureDetails returns the failure of the task. If an orchestrator returns e, it
// becomes the inner failure of the orchestration.
func (e *TaskFailedError) FailureDetails() *history.FailureDetails {
	if e.failure != nil {
		return e.failure
	}
	return &history.FailureDetails{ErrorType: e.Type, ErrorMessage: e.Message, InnerFailure: e.Inner, IsNonRetriable: e.NonRetryable}
}

// Reason returns the failure text of the task without the prefix that
// [TaskFailedError.Error] adds. If an orchestrator returns e, Reason becomes its
// output, as in .NET. The text therefore stays the same through any number of parent
// orchestrations.
func (e *TaskFailedError) Reason() string {
	if e.reason != "" {
		return e.reason
	}
	return e.Message
}

// taskFailure returns the error of a failed task.
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

// set stores a received failure. Reason is the message. Workers that use .NET's other
// mode of error propagation send only reason and details.
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

// InstanceStateError means that the status of an instance does not allow an operation.
// It matches [ErrInstanceEnded] with errors.Is if the instance has ended.
type InstanceStateError struct {
	InstanceID InstanceID
	// Operation is one of the Operation constants, or "raise event " followed by the
	// name of the event.
	Operation string
	Status    RuntimeStatus
}

// Values of [InstanceStateError.Operation].
const (
	OperationTerminate = "terminate"
	OperationSuspend   = "suspend"
	OperationResume    = "resume"
	OperationRewind    = "rewind"
	OperationPurge     = "purge"
)

// Error returns the message of the .NET extension
// (ContextImplementations/DurableClient.cs and HttpApiHandler.cs).
func (e *InstanceStateError) Error() string {
	switch e.Operation {
	case OperationRewind:
		return fmt.Sprintf("This orchestration has status %s, but only orchestrations in the \"Failed\" state can be rewound.", e.Status)
	case OperationPurge:
		return fmt.Sprintf("Only orchestrations in a terminal state can be purged, but the orchestration with instance ID %s has status %s", e.InstanceID, e.Status)
	case OperationTerminate, OperationSuspend, OperationResume:
		return fmt.Sprintf("Cannot %s the orchestration instance %s because instance is in the %s state.", e.Operation, e.InstanceID, e.Status)
	default:
		return fmt.Sprintf("Cannot %s for orchestration instance %s because instance is in %s state", e.Operation, e.InstanceID, e.Status)
	}
}

// Is reports whether target is [ErrInstanceEnded] and the instance has ended.
func (e *InstanceStateError) Is(target error) bool {
	return target == ErrInstanceEnded && e.Status.IsTerminal()
}
