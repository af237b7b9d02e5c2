package history

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// FireAndForget is the tag of a child that does not report its result to its parent
// (DurableTask.Core/OrchestrationTags.cs).
const FireAndForget = "FireAndForget"

// IsEntity reports whether instanceID is the ID of an entity, "@name@key". An entity is created by its
// first message. It is never started and never ends.
func IsEntity(instanceID string) bool { return strings.HasPrefix(instanceID, "@") }

// StartOf returns the ExecutionStarted of a history, nil if it has none.
func StartOf(past []Event) *ExecutionStarted {
	for _, e := range past {
		if start, ok := e.(*ExecutionStarted); ok {
			return start
		}
	}
	return nil
}

// patchMarker is the prefix of the data in a GenericEvent that records a code change. .NET workers
// ignore such an event, because their replay has no case for its type
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
const patchMarker = "durable.Context.Patched: "

// NewPatch returns the event which records that an execution runs with the code change id.
func NewPatch(id string, at time.Time) *GenericEvent {
	return &GenericEvent{Header: NewHeader(at), Data: new(patchMarker + id)}
}

// PatchOf returns the ID of the code change that e records. ok is false if e records none.
func PatchOf(e Event) (id string, ok bool) {
	g, ok := e.(*GenericEvent)
	if !ok || g.Data == nil {
		return "", false
	}
	return strings.CutPrefix(*g.Data, patchMarker)
}

// stepStart is the prefix of the data in a GenericEvent that records the start of a step.
const stepStart = "durable.Step started: "

// NewStepStart returns the event which records that the step with the given action number starts and
// must run at most once. It follows the step's TaskScheduled.
func NewStepStart(id int, at time.Time) *GenericEvent {
	return &GenericEvent{Header: NewHeader(at), Data: new(stepStart + strconv.Itoa(id))}
}

// StepStartOf returns the action number of the step whose start e records. ok is false if e records
// none.
func StepStartOf(e Event) (id int, ok bool) {
	g, ok := e.(*GenericEvent)
	if !ok || g.Data == nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(*g.Data, stepStart)
	id, err := strconv.Atoi(number)
	return id, ok && err == nil
}

// InterruptedSteps returns the steps whose recorded start has no completion, in the order of their
// starts. Past is the history of one execution. The record of a start follows its TaskScheduled directly;
// elsewhere it is a remainder of a rewind.
func InterruptedSteps(past []Event) (steps []*TaskScheduled) {
	for i, e := range past {
		if id, ok := Completes(e); ok && len(steps) > 0 {
			steps = slices.DeleteFunc(steps, func(s *TaskScheduled) bool { return s.EventID == id })
		}
		if id, ok := StepStartOf(e); ok && i > 0 {
			if scheduled, ok := past[i-1].(*TaskScheduled); ok && scheduled.EventID == id {
				steps = append(steps, scheduled)
			}
		}
	}
	return steps
}

// StatusAfter returns the status of an instance after event e of its history. changes is false if e
// does not change the status (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateStateAsync).
func StatusAfter(e Event) (status RuntimeStatus, changes bool) {
	switch e := e.(type) {
	case *ExecutionStarted, *ExecutionResumed:
		return Running, true
	case *ExecutionSuspended:
		return Suspended, true
	case *ExecutionTerminated:
		return Terminated, true
	case *ExecutionCompleted:
		return e.Status, true
	case *ContinueAsNew:
		return ContinuedAsNew, true
	}
	return 0, false
}
