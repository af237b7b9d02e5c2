package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// live lists the statuses of instances that have not ended. Starts refuse to replace such
// instances.
var live = []history.RuntimeStatus{history.Running, history.ContinuedAsNew, history.Pending, history.Suspended}

func started(id, executionID string, input *string) *history.ExecutionStarted {
	return &history.ExecutionStarted{
		Header:   history.NewHeader(now()),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: executionID},
		Name:     "Orchestrator",
		Input:    input,
	}
}

// to returns a message with event e for the current execution of an instance.
func to(id string, e history.Event) provider.TaskMessage {
	return provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: id}}
}

func raised(id, name string, input *string) provider.TaskMessage {
	return to(id, &history.EventRaised{Header: history.NewHeader(now()), Name: name, Input: input})
}

func completed(task int, result *string) *history.TaskCompleted {
	return &history.TaskCompleted{Header: history.NewHeader(now()), TaskScheduledID: task, Result: result}
}
