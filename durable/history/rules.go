package history

import (
	"strings"
	"time"
)

// FireAndForget is the tag of a child whose parent does not get its result
// (DurableTask.Core/OrchestrationTags.cs).
const FireAndForget = "FireAndForget"

// IsEntity reports whether an instance ID is that of an entity, "@name@key". An
// entity begins with the first message that comes for it. It is not started, and
// does not end.
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

// patchMarker begins the data of a GenericEvent that records that an execution has a
// change of its orchestrator's code. No .NET worker takes notice of it: replay has no
// case for the type (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
const patchMarker = "durable.Context.Patched: "

// NewPatch returns the event which records that an execution has a change.
func NewPatch(id string, at time.Time) *GenericEvent {
	return &GenericEvent{Header: NewHeader(at), Data: new(patchMarker + id)}
}

// PatchOf returns the ID of the change that an event records; ok is false if it is
// another event.
func PatchOf(e Event) (id string, ok bool) {
	g, ok := e.(*GenericEvent)
	if !ok || g.Data == nil {
		return "", false
	}
	return strings.CutPrefix(*g.Data, patchMarker)
}

// StatusAfter returns the status that an event of an instance's history leads to.
// changes is false if it leads to none
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
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
