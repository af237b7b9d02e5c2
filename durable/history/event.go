package history

import "time"

// An Event is one entry of an orchestration's history, and the content of a message to an instance or
// an activity.
//
// Only the pointer types of this package implement Event, one for each class of
// DurableTask.Core/History.
type Event interface {
	// Head returns the header of the event. It is never nil; changes to it change the event.
	Head() *Header

	// Type returns the type of the event.
	Type() EventType
}

// NoEventID is the [Header.EventID] of all events that do not record an action of the orchestrator.
// DurableTask.Core uses the same number.
const NoEventID = -1

// A Header contains the fields that every event has.
type Header struct {
	// EventID is the number of the action that the event records. Actions of the orchestrator are
	// numbered from 0, in program order. In all other events it is [NoEventID].
	EventID int

	// IsPlayed is stored for compatibility. DurableTask sets it on the events that an episode has
	// processed, and never reads it.
	IsPlayed bool

	// Timestamp is the creation time of the event: UTC, in units of 100 ns.
	Timestamp time.Time
}

// Head returns h.
func (h *Header) Head() *Header { return h }

// NewHeader returns the header of an event that records no action. It truncates at with
// [TruncateToTicks].
func NewHeader(at time.Time) Header {
	return Header{EventID: NoEventID, Timestamp: TruncateToTicks(at)}
}

// TruncateToTicks returns t in UTC, truncated to 100 ns. This is the resolution of a .NET DateTime
// and of a table's DateTime column.
func TruncateToTicks(t time.Time) time.Time { return t.UTC().Truncate(100 * time.Nanosecond) }

// EventType is the type of an [Event]. The numbers are those in DurableTask.Core.History.EventType.
type EventType int

// The event types. No event has type TypeExecutionFailed; only its number is defined.
const (
	TypeExecutionStarted EventType = iota
	TypeExecutionCompleted
	TypeExecutionFailed
	TypeExecutionTerminated
	TypeTaskScheduled
	TypeTaskCompleted
	TypeTaskFailed
	TypeSubOrchestrationInstanceCreated
	TypeSubOrchestrationInstanceCompleted
	TypeSubOrchestrationInstanceFailed
	TypeTimerCreated
	TypeTimerFired
	TypeOrchestratorStarted
	TypeOrchestratorCompleted
	TypeEventSent
	TypeEventRaised
	TypeContinueAsNew
	TypeGenericEvent
	TypeHistoryState
	TypeExecutionSuspended
	TypeExecutionResumed
	TypeExecutionRewound
)

var typeNames = [...]string{
	"ExecutionStarted", "ExecutionCompleted", "ExecutionFailed", "ExecutionTerminated",
	"TaskScheduled", "TaskCompleted", "TaskFailed",
	"SubOrchestrationInstanceCreated", "SubOrchestrationInstanceCompleted", "SubOrchestrationInstanceFailed",
	"TimerCreated", "TimerFired", "OrchestratorStarted", "OrchestratorCompleted",
	"EventSent", "EventRaised", "ContinueAsNew", "GenericEvent", "HistoryState",
	"ExecutionSuspended", "ExecutionResumed", "ExecutionRewound",
}

// String returns DurableTask's name of the type in tables and management APIs, such as
// "TaskScheduled".
func (t EventType) String() string {
	if t >= 0 && int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "EventType(?)"
}

// ParseEventType returns the type with the given name. ok is false if no type has this name.
func ParseEventType(name string) (t EventType, ok bool) {
	for i, n := range typeNames {
		if n == name {
			return EventType(i), true
		}
	}
	return 0, false
}
