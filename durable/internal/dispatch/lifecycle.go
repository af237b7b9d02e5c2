package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A LifecycleEvent says that an orchestration began, if its status is Running, or
// ended.
type LifecycleEvent struct {
	Name       string
	InstanceID string
	Status     history.RuntimeStatus
	Reason     string
}

// tell tells of what a committed checkpoint began and ended. Began says that its
// episode was the first of the execution. An execution that continues as new is
// completed (WebJobs.Extensions.DurableTask/OutOfProcMiddleware.cs,
// CallOrchestratorAsync). Whoever listens may not hold up or end the session.
func (s *session) tell(cp *provider.Checkpoint, began bool) {
	listen := s.d.config.Lifecycle
	if listen == nil || s.x.start == nil {
		return
	}
	of := func(status history.RuntimeStatus, reason string) {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic in what listens to the lifecycle of instances", "panic", v)
			}
		}()
		listen(LifecycleEvent{Name: s.x.start.Name, InstanceID: cp.Instance.InstanceID, Status: status, Reason: reason})
	}
	if began {
		of(history.Running, "")
	}
	if cp.ContinuedAsNew {
		of(history.Completed, "")
		of(history.Running, "")
	}
	if !s.x.ended {
		return
	}
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok {
			of(end.Status, reasonOf(end))
		}
	}
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
