package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// TaskMessage is an event and the instance that receives it. The target of a
// *history.TaskScheduled is the instance that scheduled the activity.
type TaskMessage struct {
	Event  history.Event
	Target history.OrchestrationInstance
	// Tags are the tags of the sending orchestration. They are set on activities and children
	// only.
	Tags map[string]string
}
