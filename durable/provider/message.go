package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// A TaskMessage is an event and the instance it is for. For a
// *history.TaskScheduled it is the instance that scheduled the activity and
// waits for its result.
type TaskMessage struct {
	Event  history.Event
	Target history.OrchestrationInstance
	// Tags of the sending orchestration, on activities and children; else nil.
	Tags map[string]string
}
