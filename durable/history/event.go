package history

import "time"

// An Event is one entry of an orchestration's history, and also what a
// message to an instance or an activity carries.
//
// The set is closed: the pointer types of this package, one for each class of
// DurableTask.Core/History.
type Event interface {
	// Head returns the part that every event has. It is never nil, and
	// changing it changes the event.
	Head() *Header

	// Type says which event this is.
	Type() EventType
}

// NoEventID is the [Header.EventID] of events that stand for no action of the
// orchestrator (DurableTask.Core: every event but the scheduling ones has -1).
const NoEventID = -1

// A Header is what every event has.
type Header struct {
	// EventID is the number of the action that the event records: the
	// orchestrator's actions are numbered from 0 in program order. It is
	// [NoEventID] on all other events.
	EventID int

	// IsPlayed is kept for the wire. DurableTask marks the events that an
	// episode consumed; nothing reads it back.
	IsPlayed bool

	// Timestamp is when the event came about, UTC, in units of 100 ns.
	Timestamp time.Time
}

// Head returns h.
func (h *Header) Head() *Header { return h }

// NewHeader returns the header of an event that records no action.
func NewHeader(at time.Time) Header { return Header{EventID: NoEventID, Timestamp: Ticks(at)} }

// Ticks returns t in UTC, cut to 100 ns: the resolution of a .NET DateTime and
// of a table's DateTime column.
func Ticks(t time.Time) time.Time { return t.UTC().Truncate(100 * time.Nanosecond) }

// EventType is the kind of an [Event], with the numbers of
// DurableTask.Core.History.EventType.
type EventType int

// The event types. ExecutionFailed (2) exists as a number only.
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

// String returns the name that DurableTask gives the type in tables and
// management APIs, such as "TaskScheduled".
func (t EventType) String() string {
	if t >= 0 && int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "EventType(?)"
}

// ParseEventType returns the type with the given name; ok is false if there is
// none.
func ParseEventType(name string) (t EventType, ok bool) {
	for i, n := range typeNames {
		if n == name {
			return EventType(i), true
		}
	}
	return 0, false
}
