package management

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
)

// A historyEvent is one event of a history in the management API. Its members are in the order of .NET.
type historyEvent []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (e historyEvent) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range e {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := jsontext.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := jsontext.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// ShapeHistory returns the JSON of a history
// (WebJobs.Extensions.DurableTask/ContextImplementations/DurableClient.cs,
// ConvertOrchestrationStateToStatus). A completed activity or child is one event. Inputs and outputs
// are optional. If two scheduling events have the same ID, the later one counts; the extension refuses
// such a history.
func ShapeHistory(events []history.Event, showInput, showOutput bool) []historyEvent {
	scheduled := map[int]history.Event{}
	ended := map[history.Event]bool{}
	for _, e := range events {
		if isScheduling(e) {
			scheduled[e.Head().EventID] = e
		}
		if id, ok := history.Completes(e); ok {
			if s := scheduled[id]; s != nil {
				ended[s] = true
			}
		}
	}
	out := []historyEvent{}
	for _, e := range events {
		if isBracket(e) || ended[e] {
			continue
		}
		var origin history.Event
		if id, ok := history.Completes(e); ok {
			origin = scheduled[id]
		}
		s := shape{showInput: showInput, showOutput: showOutput}
		s.add("EventType", e.Type().String())
		s.own(e)
		s.add("Timestamp", ticksJSON(e.Head().Timestamp))
		s.origin(origin)
		if started, ok := e.(*history.ExecutionStarted); ok {
			s.add("FunctionName", started.Name)
		}
		out = append(out, s.event)
	}
	return out
}

// isBracket reports whether e marks the start or end of an episode.
func isBracket(e history.Event) bool {
	return e.Type() == history.TypeOrchestratorStarted || e.Type() == history.TypeOrchestratorCompleted
}

func isScheduling(e history.Event) bool {
	return e.Type() == history.TypeTaskScheduled || e.Type() == history.TypeSubOrchestrationInstanceCreated
}

// A shape collects the members of an event.
type shape struct {
	showInput, showOutput bool
	isStart               bool
	event                 historyEvent
}

func (s *shape) add(name string, value any) { s.event = append(s.event, member{name, value}) }

// own adds the fields of an event except those that the API omits (DurableClient.cs,
// ConvertOrchestrationStateToStatus).
func (s *shape) own(e history.Event) {
	_, s.isStart = e.(*history.ExecutionStarted)
	history.VisitFields(e, s)
}

// Since implements [history.FieldVisitor]. So do the methods below.
func (s *shape) Since(_ byte, set bool) bool { return set }

// Bool adds a Boolean.
func (s *shape) Bool(name string, v *bool) { s.add(name, *v) }

// Int omits the ID of the scheduling event.
func (s *shape) Int(string, *int) {}

// OptionalInt adds a number or null.
func (s *shape) OptionalInt(name string, v **int) { s.add(name, *v) }

// String omits versions, and the name of an orchestrator, which is added elsewhere.
func (s *shape) String(name string, v *string) {
	if name != "Version" && !(name == "Name" && s.isStart) {
		s.add(name, *v)
	}
}

// Text adds a text. It adds inputs and results only on request.
func (s *shape) Text(name string, v **string) {
	switch {
	case name == "Input":
		if s.showInput {
			s.add(name, *v)
		}
	case name != "Result":
		s.add(name, *v)
	case s.showOutput:
		s.add(name, PayloadJSON(*v))
	}
}

// JSON adds JSON as a text.
func (s *shape) JSON(name string, v **string) { s.add(name, *v) }

// Time adds a time in the format of Newtonsoft.Json.
func (s *shape) Time(name string, v *time.Time) { s.add(name, ticksJSON(*v)) }

// OptionalTime adds a time, or null for the zero time.
func (s *shape) OptionalTime(name string, v *time.Time) { s.add(name, optionalTicksJSON(*v)) }

// Tags omits the tags of a start.
func (s *shape) Tags(name string, v *map[string]string) {
	if !s.isStart {
		s.add(name, *v)
	}
}

// Status adds the name of a status.
func (s *shape) Status(name string, v *history.RuntimeStatus) { s.add(name, v.String()) }

// Instance omits the instance of a start.
func (s *shape) Instance(string, *history.OrchestrationInstance) {}

// Parent omits the parent of a start.
func (s *shape) Parent(string, **history.ParentInstance) {}

// Trace adds a trace context.
func (s *shape) Trace(name string, v **history.TraceContext) { s.add(name, traceJSON(*v)) }

// Failure adds failure details.
func (s *shape) Failure(name string, v **history.FailureDetails) { s.add(name, failureJSON(*v)) }

// origin adds members of the event that scheduled this one.
func (s *shape) origin(scheduling history.Event) {
	switch e := scheduling.(type) {
	case *history.TaskScheduled:
		s.add("ScheduledTime", ticksJSON(e.Timestamp))
		s.add("FunctionName", e.Name)
		s.Text("Input", &e.Input)
	case *history.SubOrchestrationInstanceCreated:
		s.add("ScheduledTime", ticksJSON(e.Timestamp))
		s.add("FunctionName", e.Name)
		s.Text("Input", &e.Input)
	}
}

// ticksJSON formats t like Newtonsoft.Json formats a UTC DateTime: with a precision of 100 ns, without
// trailing zeros.
func ticksJSON(t time.Time) string {
	s := history.TruncateToTicks(t).Format("2006-01-02T15:04:05.0000000")
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "Z"
}

func optionalTicksJSON(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return ticksJSON(t)
}

// A failureDetails is FailureDetails in the JSON of .NET (DurableTask.Core/FailureDetails.cs).
type failureDetails struct {
	ErrorType      string
	ErrorMessage   string
	StackTrace     *string
	InnerFailure   *failureDetails
	IsNonRetriable bool
	Properties     map[string]json.RawMessage
}

func failureJSON(f *history.FailureDetails) *failureDetails {
	if f == nil {
		return nil
	}
	out := &failureDetails{
		ErrorType: f.ErrorType, ErrorMessage: f.ErrorMessage, StackTrace: f.StackTrace,
		InnerFailure: failureJSON(f.InnerFailure), IsNonRetriable: f.IsNonRetriable,
	}
	for name, value := range f.Properties {
		if out.Properties == nil {
			out.Properties = map[string]json.RawMessage{}
		}
		out.Properties[name] = PayloadJSON(&value)
	}
	return out
}

// A traceContext is DistributedTraceContext in the JSON of .NET
// (DurableTask.Core/Tracing/DistributedTraceContext.cs).
type traceContext struct {
	TraceParent       string
	TraceState        *string
	ID                *string `json:"Id"`
	SpanID            *string `json:"SpanId"`
	ActivityStartTime *string
}

func traceJSON(t *history.TraceContext) *traceContext {
	if t == nil {
		return nil
	}
	return &traceContext{t.TraceParent, t.TraceState, t.ID, t.SpanID, t.ActivityStartTime}
}

// shapeRecord returns the JSON of a tracking record: its position in the log, and the event as in a
// history.
func shapeRecord(r *durable.TrackingRecord, showInput, showOutput bool) historyEvent {
	s := shape{showInput: showInput, showOutput: showOutput}
	s.add("ExecutionId", r.ExecutionID)
	s.add("SequenceNumber", r.SequenceNumber)
	s.add("Timestamp", ticksJSON(r.Event.Head().Timestamp))
	s.add("EventType", r.Event.Type().String())
	if id := r.Event.Head().EventID; id != history.NoEventID {
		s.add("EventId", id)
	}
	if id, ok := history.Completes(r.Event); ok {
		s.add("TaskScheduledId", id)
	}
	switch e := r.Event.(type) {
	case *history.ExecutionStarted:
		s.add("Name", e.Name)
		s.own(e)
	case *history.HistoryState:
		s.add("State", PayloadJSON(e.State))
	default:
		s.own(e)
	}
	if len(r.Shortened) > 0 {
		s.add("Shortened", r.Shortened)
	}
	return s.event
}
