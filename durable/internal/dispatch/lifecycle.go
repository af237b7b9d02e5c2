package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A LifecycleEvent says that an orchestration began, if its status is Running, or
// ended.
type LifecycleEvent struct {
	Name       string
	InstanceID string
	Status     history.RuntimeStatus
	Reason     string
}

// reasonOf returns why an execution ended as it did, empty if it completed.
func reasonOf(end *history.ExecutionCompleted) string {
	switch {
	case end.Status == history.Completed:
		return ""
	case end.Failure != nil:
		return end.Failure.ErrorMessage
	case end.Result != nil:
		return *end.Result
	}
	return ""
}

// endEvent returns what .NET calls the event that an orchestration ends with
// (WebJobs.Extensions.DurableTask/EtwEventSource.cs). Operators search logs for
// these names.
func endEvent(status history.RuntimeStatus) string {
	if status == history.Failed {
		return "FunctionFailed"
	}
	if status == history.Terminated {
		return "FunctionTerminated"
	}
	return "FunctionCompleted"
}
