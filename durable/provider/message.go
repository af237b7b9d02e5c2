package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// TaskMessage is an event and the instance it is for. The target of a
// *history.TaskScheduled is the instance that scheduled the activity.
type TaskMessage struct {
	Event  history.Event
	Target history.OrchestrationInstance
	// Tags of the sending orchestration, on activities and children; else nil.
	Tags map[string]string
}
