package history

// EventSent records that the orchestrator sent an event to another instance.
type EventSent struct {
	Header
	InstanceID string // the receiver
	Name       string
	Input      *string
}

// EventRaised delivers an external event.
type EventRaised struct {
	Header
	Name               string
	Input              *string
	ParentTraceContext *TraceContext
}

// GenericEvent has no effect on a replay by DurableTask. Rewind replaces the history rows that it
// removes with GenericEvents, and sends one to wake an instance. An event created by [NewPatch]
// records a change of the orchestrator's code.
type GenericEvent struct {
	Header
	Data *string
}

// HistoryState is the state of an execution after an episode. It is never part of a history; only
// tracking records contain it.
type HistoryState struct {
	Header
	State *string // JSON text
}

// Type returns [TypeEventSent].
func (*EventSent) Type() EventType { return TypeEventSent }

// Type returns [TypeEventRaised].
func (*EventRaised) Type() EventType { return TypeEventRaised }

// Type returns [TypeGenericEvent].
func (*GenericEvent) Type() EventType { return TypeGenericEvent }

// Type returns [TypeHistoryState].
func (*HistoryState) Type() EventType { return TypeHistoryState }
