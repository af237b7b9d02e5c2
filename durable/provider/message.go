package provider

import (
	"fmt"
	"strconv"
	"strings"
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

// wakePolls precedes the IDs in the data of the GenericEvent that wakes an instance for polls.
const wakePolls = "durable.Poll: continue "

// WakePolls returns a message that is delivered at due, when one of the polls with the given task IDs
// becomes due. The execution has called the polls and waits for them without a session. No history
// contains the event.
func WakePolls(execution history.OrchestrationInstance, due time.Time, ids []int) TaskMessage {
	data := wakePolls + strings.Trim(fmt.Sprint(ids), "[]")
	return TaskMessage{Event: &history.GenericEvent{Header: history.NewHeader(due), Data: &data}, Target: execution}
}

// WokenPolls returns the arguments of [WakePolls] if m was made by it. Otherwise ids is nil.
func (m TaskMessage) WokenPolls() (due time.Time, ids []int) {
	e, ok := m.Event.(*history.GenericEvent)
	if !ok || e.Data == nil {
		return time.Time{}, nil
	}
	list, ok := strings.CutPrefix(*e.Data, wakePolls)
	if !ok {
		return time.Time{}, nil
	}
	for text := range strings.FieldsSeq(list) {
		id, err := strconv.Atoi(text)
		if err != nil {
			return time.Time{}, nil
		}
		ids = append(ids, id)
	}
	return e.Timestamp, ids
}
