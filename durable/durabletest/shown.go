package durabletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A shown history is the history in a response of the management API
// (WebJobs.Extensions.DurableTask/ContextImplementations/DurableClient.cs,
// ConvertOrchestrationStateToStatus). It lacks the start and end of episodes, the EventIDs of actions,
// and the scheduling events of completed actions.
type shown struct {
	arrivals  []*arrival
	decisions []*decision // sorted by time
	end       *history.ExecutionCompleted
	rewound   bool
}

// An arrival is an event that the orchestrator received.
type arrival struct {
	event     history.Event
	completes *decision // the decision that event completes; nil if it completes none
}

// A decision is an action that the orchestrator started.
type decision struct {
	event history.Event // EventID is -1 until it is known
}

func (d *decision) at() time.Time { return d.event.Head().Timestamp }
func (d *decision) known() bool   { return d.event.Head().EventID >= 0 }

// readShown decodes the historyEvents of a status.
func readShown(status object, objects []object) (*shown, error) {
	s := new(shown)
	for i, o := range objects {
		if err := s.read(status, o); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	slices.SortStableFunc(s.decisions, func(a, b *decision) int { return a.at().Compare(b.at()) })
	return s, nil
}

// read adds the next event.
func (s *shown) read(status, o object) error {
	members := make(object, len(o)+1)
	for name, value := range o {
		members[name] = value
	}
	members["EventId"] = json.RawMessage("-1")
	if result, ok := o["Result"]; ok && string(result) != "null" {
		text, err := json.Marshal(string(result)) // the response has JSON; the history has it as text
		if err != nil {
			return err
		}
		members["Result"] = text
	}
	e, err := members.event()
	if err != nil {
		return err
	}
	switch e := e.(type) {
	case *history.ExecutionStarted:
		if !o.has("Input") {
			return errors.New("the input is missing; fetch the history with showInput=true")
		}
		e.Name, e.Version = o.text("FunctionName"), status.text("version")
		e.Instance.InstanceID = status.text("instanceId")
		s.arrivals = append(s.arrivals, &arrival{event: e})
	case *history.ExecutionCompleted:
		s.end = e
	case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated, *history.EventSent:
		s.decisions = append(s.decisions, &decision{e})
	case *history.TaskCompleted, *history.SubOrchestrationInstanceCompleted:
		if !o.has("Result") {
			return errors.New("the results are missing; fetch the history with showHistoryOutput=true")
		}
		return s.readAnswer(o, e)
	case *history.TaskFailed, *history.SubOrchestrationInstanceFailed:
		return s.readAnswer(o, e)
	case *history.TimerFired:
		s.arrivals = append(s.arrivals, &arrival{event: e, completes: s.timer(e)})
	default:
		_, patch := history.PatchOf(e)
		s.rewound = s.rewound || e.Type() == history.TypeGenericEvent && !patch
		s.arrivals = append(s.arrivals, &arrival{event: e})
	}
	return nil
}

// readAnswer adds the end of an activity or a child. The event contains the name and the start time of
// its decision. An event without a name is a duplicate result, which no decision waits for.
func (s *shown) readAnswer(o object, e history.Event) error {
	name := o.text("FunctionName")
	if name == "" {
		return nil
	}
	var began eventjson.Time
	if err := json.Unmarshal(o["ScheduledTime"], &began); err != nil {
		return fmt.Errorf("ScheduledTime: %w", err)
	}
	head := history.NewHeader(began.Time)
	d := &decision{&history.TaskScheduled{Header: head, Name: name}}
	switch e.(type) {
	case *history.SubOrchestrationInstanceCompleted, *history.SubOrchestrationInstanceFailed:
		d.event = &history.SubOrchestrationInstanceCreated{Header: head, Name: name}
	}
	s.decisions = append(s.decisions, d)
	s.arrivals = append(s.arrivals, &arrival{event: e, completes: d})
	return nil
}

// timer returns the decision that created the timer that fired, nil if no such decision is shown.
func (s *shown) timer(fired *history.TimerFired) *decision {
	for _, d := range s.decisions {
		created, ok := d.event.(*history.TimerCreated)
		if !ok || !created.FireAt.Equal(fired.FireAt) {
			continue
		}
		if !slices.ContainsFunc(s.arrivals, func(a *arrival) bool { return a.completes == d }) {
			return d
		}
	}
	return nil
}

// sender returns the sender that a request to an entity contains. It has the execution ID, which the
// management API omits, and the instance ID, which historyEvents alone omit. It is empty if the
// orchestration sent no such request.
func (s *shown) sender() history.OrchestrationInstance {
	for _, d := range s.decisions {
		if sent, ok := d.event.(*history.EventSent); ok && history.IsEntity(sent.InstanceID) {
			if r, err := entity.DecodeRequest(sent.Input); err == nil && r.ParentExecution != "" {
				return history.OrchestrationInstance{InstanceID: r.Parent, ExecutionID: r.ParentExecution}
			}
		}
	}
	return history.OrchestrationInstance{}
}

// noteRequest records the ID that the code gave to a request to an entity, if the history has another
// ID. IDs can depend on times, and the response does not contain all times.
func noteRequest(requests map[string]string, e history.Event, action replay.Action) {
	was, ok := e.(*history.EventSent)
	is, sends := action.(*replay.SendEvent)
	if !ok || !sends || !history.IsEntity(was.InstanceID) {
		return
	}
	recorded, err := entity.DecodeRequest(was.Input)
	made, madeErr := entity.DecodeRequest(is.Input)
	if err == nil && madeErr == nil {
		requests[strings.ToLower(recorded.ID)] = made.ID
	}
}

// renamed returns e. If e answers one of the requests, the result has the request ID that the code
// expects.
func renamed(e history.Event, requests map[string]string) history.Event {
	answer, ok := e.(*history.EventRaised)
	if !ok || requests[strings.ToLower(answer.Name)] == "" {
		return e
	}
	here := *answer
	here.Name = requests[strings.ToLower(answer.Name)]
	return &here
}

// answer returns the event with the EventID of the action that it completes.
func (a *arrival) answer() history.Event {
	id := history.NoEventID
	if a.completes != nil {
		id = a.completes.event.Head().EventID
	}
	switch e := a.event.(type) {
	case *history.TaskCompleted:
		e.TaskScheduledID = id
	case *history.TaskFailed:
		e.TaskScheduledID = id
	case *history.SubOrchestrationInstanceCompleted:
		e.TaskScheduledID = id
	case *history.SubOrchestrationInstanceFailed:
		e.TaskScheduledID = id
	case *history.TimerFired:
		e.TimerID = id
	}
	return a.event
}

// recordOf returns the decision that records action, the n-th action of the execution. It has the same
// time as the n-th shown decision. In a rewound instance, its time does not matter, because rewind
// restarts failed actions under their old EventIDs. The result is nil if no decision matches.
func (s *shown) recordOf(action replay.Action, n int) *decision {
	if n >= len(s.decisions) {
		return nil
	}
	for _, d := range s.decisions {
		if !d.known() && (s.rewound || d.at().Equal(s.decisions[n].at())) && records(d.event, action) {
			return d
		}
	}
	return nil
}

// records reports whether event e can be the record of an action.
func records(e history.Event, action replay.Action) bool {
	switch e := e.(type) {
	case *history.TaskScheduled:
		a, ok := action.(*replay.ScheduleTask)
		return ok && strings.EqualFold(a.Name, e.Name)
	case *history.SubOrchestrationInstanceCreated:
		a, ok := action.(*replay.CreateSubOrchestration)
		return ok && strings.EqualFold(a.Name, e.Name)
	case *history.EventSent:
		a, ok := action.(*replay.SendEvent)
		return ok && strings.EqualFold(a.Name, e.Name)
	default:
		_, ok := action.(*replay.CreateTimer)
		return ok
	}
}

// latest returns an approximate time for the episode that processes e and follows an episode at now.
func latest(now time.Time, e history.Event) time.Time {
	at := e.Head().Timestamp
	if fired, ok := e.(*history.TimerFired); ok && fired.FireAt.After(at) {
		at = fired.FireAt
	}
	if at.After(now) {
		return at
	}
	return now
}
