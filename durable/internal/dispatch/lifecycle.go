package dispatch

import (
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
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

// notify calls listen for the executions that a committed checkpoint started and ended.
// IsFirst is set if the episode was the first of the execution. An execution that continues as
// new counts as completed (WebJobs.Extensions.DurableTask/OutOfProcMiddleware.cs,
// CallOrchestratorAsync). A panic of listen is logged and does not end the session.
func notify(listen func(LifecycleEvent), log *slog.Logger, name string, cp *provider.Checkpoint, isFirst, ended bool) {
	send := func(status history.RuntimeStatus, reason string) {
		defer func() {
			if v := recover(); v != nil {
				log.Error("panic in the Lifecycle callback", "panic", v)
			}
		}()
		listen(LifecycleEvent{Name: name, InstanceID: cp.Instance.InstanceID, Status: status, Reason: reason})
	}
	if isFirst {
		send(history.Running, "")
	}
	if cp.ContinuedAsNew {
		send(history.Completed, "")
		send(history.Running, "")
	}
	if !ended {
		return
	}
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok {
			send(end.Status, reasonOf(end))
		}
	}
}
