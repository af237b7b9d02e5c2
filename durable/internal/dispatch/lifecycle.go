package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A LifecycleEvent reports that an orchestration started, if its status is Running, or ended.
type LifecycleEvent struct {
	Name       string
	InstanceID string
	Status     history.RuntimeStatus
	Reason     string
}

// reasonOf returns the reason of an execution's end, or "" if it completed.
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

// endEvent returns .NET's name of the event that ends an orchestration
// (WebJobs.Extensions.DurableTask/EtwEventSource.cs). Operators search logs for these names.
func endEvent(status history.RuntimeStatus) string {
	if status == history.Failed {
		return "FunctionFailed"
	}
	if status == history.Terminated {
		return "FunctionTerminated"
	}
	return "FunctionCompleted"
}
