// Package eventjson reads events as .NET writes them in JSON: in messages, in
// columns of tables and in what tools print.
package eventjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// TypeMember holds the .NET type of an object, written by Newtonsoft.Json;
// ContractTypeMember does so in what DataContractJsonSerializer wrote.
const (
	TypeMember         = "$type"
	ContractTypeMember = "__type"
)

const eventNamespace = "DurableTask.Core.History"

// TypeName returns the name of the .NET class of events of type t.
func TypeName(t history.EventType) string {
	name := eventNamespace + "." + t.String()
	if t == history.TypeGenericEvent { // the only one whose name repeats the suffix
		return name
	}
	return name + "Event"
}

// An Event is the JSON of an event: all members that any class of events has.
// Where two classes have a member of one name, it has the same type.
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

// EventType says which event e is. Only its type name is trusted: old versions
// gave some events another number.
func (e *Event) EventType() (history.EventType, error) {
	var class string
	switch {
	case e.Type != "":
		name := cutAssembly(e.Type)
		var ok bool
		if class, ok = strings.CutPrefix(name, eventNamespace+"."); !ok {
			return 0, fmt.Errorf("unknown type of event %q", name)
		}
	case e.ContractType != "":
		name, namespace, _ := strings.Cut(e.ContractType, ":#")
		if namespace != eventNamespace {
			return 0, fmt.Errorf("unknown type of event %q", e.ContractType)
		}
		class = name
	default:
		return 0, fmt.Errorf("the event has neither %s nor %s", TypeMember, ContractTypeMember)
	}
	t, ok := history.ParseEventType(class)
	if !ok {
		t, ok = history.ParseEventType(strings.TrimSuffix(class, "Event"))
	}
	if !ok {
		return 0, fmt.Errorf("unknown type of event %q", class)
	}
	return t, nil
}

// cutAssembly returns a .NET type's name without the assembly, which follows
// the first comma outside brackets.
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
	head := history.Header{EventID: e.EventID, IsPlayed: e.IsPlayed, Timestamp: e.Timestamp.Time}
	switch t {
	case history.TypeExecutionStarted:
		ev := &history.ExecutionStarted{
			Header:             head,
			Parent:             e.ParentInstance.parent(),
			Name:               e.Name,
			Version:            e.Version,
			Input:              e.Input,
			Tags:               e.Tags,
			Correlation:        e.Correlation,
			ParentTraceContext: e.ParentTraceContext.context(),
			ScheduledStart:     e.ScheduledStartTime.Time,
			Generation:         e.Generation,
			GenerateNewTrace:   e.GenerateNewTrace,
		}
		if e.OrchestrationInstance != nil {
			ev.Instance = e.OrchestrationInstance.Decode()
		}
		return ev, nil
	case history.TypeExecutionCompleted:
		return &history.ExecutionCompleted{
			Header: head, Status: history.RuntimeStatus(e.OrchestrationStatus), Result: e.Result, Failure: e.FailureDetails.Decode(),
		}, nil
	case history.TypeContinueAsNew:
		return &history.ContinueAsNew{
			Header: head, Status: history.RuntimeStatus(e.OrchestrationStatus), Result: e.Result, Failure: e.FailureDetails.Decode(),
		}, nil
	case history.TypeExecutionTerminated:
		return &history.ExecutionTerminated{Header: head, Reason: e.Input}, nil
	case history.TypeExecutionSuspended:
		return &history.ExecutionSuspended{Header: head, Reason: e.Reason}, nil
	case history.TypeExecutionResumed:
		return &history.ExecutionResumed{Header: head, Reason: e.Reason}, nil
	case history.TypeExecutionRewound:
		return &history.ExecutionRewound{
			Header: head, Reason: e.Reason, ParentExecutionID: e.ParentExecutionID, InstanceID: e.InstanceID,
			ParentTraceContext: e.ParentTraceContext.context(),
		}, nil
	case history.TypeTaskScheduled:
		return &history.TaskScheduled{
			Header: head, Name: e.Name, Version: e.Version, Input: e.Input,
			ParentTraceContext: e.ParentTraceContext.context(), Tags: e.Tags,
		}, nil
	case history.TypeTaskCompleted:
		return &history.TaskCompleted{Header: head, TaskScheduledID: e.TaskScheduledID, Result: e.Result}, nil
	case history.TypeTaskFailed:
		return &history.TaskFailed{
			Header: head, TaskScheduledID: e.TaskScheduledID, Reason: e.Reason, Details: e.Details, Failure: e.FailureDetails.Decode(),
		}, nil
	case history.TypeSubOrchestrationInstanceCreated:
		return &history.SubOrchestrationInstanceCreated{
			Header: head, Name: e.Name, Version: e.Version, InstanceID: orEmpty(e.InstanceID), Input: e.Input,
			ClientSpanID: e.ClientSpanID, Tags: e.Tags,
		}, nil
	case history.TypeSubOrchestrationInstanceCompleted:
		return &history.SubOrchestrationInstanceCompleted{Header: head, TaskScheduledID: e.TaskScheduledID, Result: e.Result}, nil
	case history.TypeSubOrchestrationInstanceFailed:
		return &history.SubOrchestrationInstanceFailed{
			Header: head, TaskScheduledID: e.TaskScheduledID, Reason: e.Reason, Details: e.Details, Failure: e.FailureDetails.Decode(),
		}, nil
	case history.TypeTimerCreated:
		return &history.TimerCreated{Header: head, FireAt: e.FireAt.Time}, nil
	case history.TypeTimerFired:
		return &history.TimerFired{Header: head, TimerID: e.TimerID, FireAt: e.FireAt.Time}, nil
	case history.TypeOrchestratorStarted:
		return &history.OrchestratorStarted{Header: head}, nil
	case history.TypeOrchestratorCompleted:
		return &history.OrchestratorCompleted{Header: head}, nil
	case history.TypeEventSent:
		return &history.EventSent{Header: head, InstanceID: orEmpty(e.InstanceID), Name: e.Name, Input: e.Input}, nil
	case history.TypeEventRaised:
		return &history.EventRaised{
			Header: head, Name: e.Name, Input: e.Input, ParentTraceContext: e.ParentTraceContext.context(),
		}, nil
	case history.TypeGenericEvent:
		return &history.GenericEvent{Header: head, Data: e.Data}, nil
	case history.TypeHistoryState:
		ev := &history.HistoryState{Header: head}
		if len(e.State) > 0 && !bytes.Equal(e.State, []byte("null")) {
			ev.State = new(string(e.State))
		}
		return ev, nil
	case history.TypeExecutionFailed:
		return nil, fmt.Errorf("event type %s has no class", t)
	}
	return nil, fmt.Errorf("unknown event type %d", int(t))
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
