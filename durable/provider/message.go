package provider

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// TaskMessage is an event and the instance that receives it. The target of a
// *history.TaskScheduled is the instance that scheduled the activity.
type TaskMessage struct {
	Event  history.Event
	Target history.OrchestrationInstance
	// Tags are the tags of the sending orchestration. They are set on activities and children
	// only.
	Tags map[string]string
}

// wakeSteps is the data of the GenericEvent that wakes an instance with unrecorded steps.
const wakeSteps = "durable.Step: continue"

// WakeSteps returns a message that makes a worker run the unrecorded steps of an execution. It has
// no effect on an execution without them. No history contains the event.
func WakeSteps(execution history.OrchestrationInstance, at time.Time) TaskMessage {
	return TaskMessage{Event: &history.GenericEvent{Header: history.NewHeader(at), Data: new(wakeSteps)}, Target: execution}
}

// WakesSteps reports whether m was made by [WakeSteps].
func (m TaskMessage) WakesSteps() bool {
	e, ok := m.Event.(*history.GenericEvent)
	return ok && e.Data != nil && *e.Data == wakeSteps
}
