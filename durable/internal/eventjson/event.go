// Package eventjson decodes events from the JSON of .NET: in queue messages, table columns and
// the output of tools. It also encodes events.
package eventjson

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// TypeMember is the member with an object's .NET type in the JSON of Newtonsoft.Json.
// ContractTypeMember is the one of DataContractJsonSerializer.
const (
	TypeMember         = "$type"
	ContractTypeMember = "__type"
)

const eventNamespace = "DurableTask.Core.History"

// TypeName returns the name of the .NET class of events of type t.
func TypeName(t history.EventType) string {
	name := eventNamespace + "." + t.String()
	if t == history.TypeGenericEvent { // its class name has no second "Event"
		return name
	}
	return name + "Event"
}

// Event is the JSON of an event. It has the members of all event classes. Members with the same
// name have the same type in all classes.
type Event struct {
	Type         string `json:"$type"`
	ContractType string `json:"__type"`

	EventID   int `json:"EventId"`
	IsPlayed  bool
	Timestamp Time

	OrchestrationInstance *Instance
	ParentInstance        *Parent
	Name                  string
	Version               string
	Input                 *string
	Tags                  Tags
	Correlation           *string
	ParentTraceContext    *TraceContext
	ScheduledStartTime    Time
	Generation            *int
	GenerateNewTrace      bool

	OrchestrationStatus int
	Result              *string
	FailureDetails      *Failure

	TaskScheduledID int `json:"TaskScheduledId"`
	Reason          *string
	Details         *string

	InstanceID        *string `json:"InstanceId"`
	ClientSpanID      *string `json:"ClientSpanId"`
	ParentExecutionID *string `json:"ParentExecutionId"`

	TimerID int `json:"TimerId"`
	FireAt  Time

	Data  *string
	State json.RawMessage
}

// EventType returns the type of e. It uses the type name and ignores the number of the type,
// which some old versions wrote differently.
func (e *Event) EventType() (history.EventType, error) {
	var class string
	switch {
	case e.Type != "":
		name := cutAssembly(e.Type)
		var ok bool
		if class, ok = strings.CutPrefix(name, eventNamespace+"."); !ok {
			return 0, fmt.Errorf("unknown event type %q", name)
		}
	case e.ContractType != "":
		name, namespace, _ := strings.Cut(e.ContractType, ":#")
		if namespace != eventNamespace {
			return 0, fmt.Errorf("unknown event type %q", e.ContractType)
		}
		class = name
	default:
		return 0, fmt.Errorf("event has neither %s nor %s", TypeMember, ContractTypeMember)
	}
	t, ok := history.ParseEventType(class)
	if !ok {
		t, ok = history.ParseEventType(strings.TrimSuffix(class, "Event"))
	}
	if !ok {
		return 0, fmt.Errorf("unknown event type %q", class)
	}
	return t, nil
}

// cutAssembly returns a .NET type's name without the assembly, which follows the first comma
// outside brackets.
func cutAssembly(name string) string {
	depth := 0
	for i := range len(name) {
		switch name[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth <= 0 {
				return name[:i]
			}
		}
	}
	return name
}

// Decode returns e as an event of type t.
func (e *Event) Decode(t history.EventType) (history.Event, error) {
	ev := history.NewEvent(t)
	switch {
	case t == history.TypeExecutionFailed:
		return nil, fmt.Errorf("event type %s has no class", t)
	case ev == nil:
		return nil, fmt.Errorf("unknown event type %d", int(t))
	}
	*ev.Head() = history.Header{EventID: e.EventID, IsPlayed: e.IsPlayed, Timestamp: e.Timestamp.Time}
	history.VisitFields(ev, reader{e})
	return ev, nil
}

// Member returns a pointer to the member with the given name, or nil. It knows the members that
// are fields of events.
func (e *Event) Member(name string) any {
	switch name {
	case "OrchestrationInstance":
		return &e.OrchestrationInstance
	case "ParentInstance":
		return &e.ParentInstance
	case "Name":
		return &e.Name
	case "Version":
		return &e.Version
	case "Input":
		return &e.Input
	case "Tags":
		return &e.Tags
	case "Correlation":
		return &e.Correlation
	case "ParentTraceContext":
		return &e.ParentTraceContext
	case "ScheduledStartTime":
		return &e.ScheduledStartTime
	case "Generation":
		return &e.Generation
	case "GenerateNewTrace":
		return &e.GenerateNewTrace
	case "OrchestrationStatus":
		return &e.OrchestrationStatus
	case "Result":
		return &e.Result
	case "FailureDetails":
		return &e.FailureDetails
	case "TaskScheduledId":
		return &e.TaskScheduledID
	case "Reason":
		return &e.Reason
	case "Details":
		return &e.Details
	case "InstanceId":
		return &e.InstanceID
	case "ClientSpanId":
		return &e.ClientSpanID
	case "ParentExecutionId":
		return &e.ParentExecutionID
	case "TimerId":
		return &e.TimerID
	case "FireAt":
		return &e.FireAt
	case "Data":
		return &e.Data
	case "State":
		return &e.State
	}
	return nil
}

// reader sets the fields of an event from the members of its JSON.
type reader struct{ event *Event }

// member returns the member with the given name. It panics if the member does not have type T.
func member[T any](r reader, name string) T {
	v, ok := r.event.Member(name).(*T)
	if !ok {
		panic(fmt.Sprintf("package eventjson: Event has no member %s of type %v; add the member to Event, and its name to Member", name, reflect.TypeFor[T]()))
	}
	return *v
}

// Since returns true: JSON has no versions; unset members are missing.
func (r reader) Since(byte, bool) bool { return true }

func (r reader) Bool(name string, v *bool) { *v = member[bool](r, name) }

func (r reader) Int(name string, v *int) { *v = member[int](r, name) }

func (r reader) OptionalInt(name string, v **int) { *v = member[*int](r, name) }

// String decodes a text that is required in some classes and optional in others.
func (r reader) String(name string, v *string) {
	switch m := r.event.Member(name).(type) {
	case *string:
		*v = *m
	case **string:
		*v = orEmpty(*m)
	default:
		*v = member[string](r, name)
	}
}

func (r reader) Text(name string, v **string) { *v = member[*string](r, name) }

func (r reader) JSON(name string, v **string) {
	if text := member[json.RawMessage](r, name); len(text) > 0 && string(text) != "null" {
		*v = new(string(text))
	}
}

func (r reader) Time(name string, v *time.Time) { *v = member[Time](r, name).Time }

func (r reader) OptionalTime(name string, v *time.Time) { r.Time(name, v) }

func (r reader) Tags(name string, v *map[string]string) { *v = member[Tags](r, name) }

func (r reader) Status(name string, v *history.RuntimeStatus) {
	*v = history.RuntimeStatus(member[int](r, name))
}

func (r reader) Instance(name string, v *history.OrchestrationInstance) {
	if i := member[*Instance](r, name); i != nil {
		*v = i.Decode()
	}
}

func (r reader) Parent(name string, v **history.ParentInstance) {
	*v = member[*Parent](r, name).parent()
}

func (r reader) Trace(name string, v **history.TraceContext) {
	*v = member[*TraceContext](r, name).context()
}

func (r reader) Failure(name string, v **history.FailureDetails) {
	*v = member[*Failure](r, name).Decode()
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
