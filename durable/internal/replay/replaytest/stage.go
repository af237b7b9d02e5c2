// Package replaytest runs one instance of an orchestrator through its episodes, for tests of
// replay and of the authoring API. It also formats and builds events and actions.
package replaytest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Epoch is the time of a Stage's first episode.
var Epoch = time.Date(2024, 10, 1, 12, 0, 0, 123456700, time.UTC)

// TB is the part of testing.TB that a Stage uses.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// A Stage is one instance. It keeps the history as the engine does, and holds the orchestrator
// in memory between episodes. It runs every episode a second time, in a new execution that
// replays the history from the start. The test fails if the two outcomes differ.
type Stage struct {
	tb   TB
	name string
	code replay.Code
	live *replay.Execution

	Instance history.OrchestrationInstance
	// Now is the time of the next episode.
	Now time.Time
	// History contains the events and the recorded decisions so far.
	History []history.Event
	// Actions contains the decisions so far.
	Actions []replay.Action
	// Outcome is the outcome of the last episode.
	Outcome replay.Outcome
	// Compare enables the second run. Disable it for orchestrators with side effects that the
	// test observes: they would occur twice. The default is true.
	Compare bool
	// Cached holds the orchestrator in memory between episodes. If it is false, every episode
	// replays the history. The default is true.
	Cached bool
}

// New returns a Stage for the orchestrator with the given wire name.
func New(tb TB, name string, code replay.Code) *Stage {
	s := &Stage{
		tb: tb, name: name, code: code, Now: Epoch, Compare: true, Cached: true,
		Instance: history.OrchestrationInstance{InstanceID: "abc", ExecutionID: "e0"},
	}
	tb.Cleanup(s.Evict)
	return s
}

// Evict unloads the orchestrator. The next episode replays the history.
func (s *Stage) Evict() {
	if s.live != nil {
		s.live.Close()
		s.live = nil
	}
}

// Start runs the first episode with the given input, encoded as JSON, and with further events.
// It returns the new actions.
func (s *Stage) Start(input any, more ...history.Event) []replay.Action {
	s.tb.Helper()
	e := &history.ExecutionStarted{Header: history.NewHeader(s.Now), Instance: s.Instance, Name: s.name}
	if input != nil {
		raw, err := json.Marshal(input)
		if err != nil {
			s.tb.Fatalf("marshal input: %v", err)
		}
		e.Input = new(string(raw))
	}
	return s.Episode(append([]history.Event{e}, more...)...)
}

// Episode runs an episode with the given events, and returns the new actions.
func (s *Stage) Episode(events ...history.Event) []replay.Action {
	s.tb.Helper()
	fresh := append([]history.Event{&history.OrchestratorStarted{Header: history.NewHeader(s.Now)}}, events...)
	if s.live == nil {
		s.live, s.Outcome = s.replay(fresh)
	} else {
		s.Outcome = s.live.Episode(nil, fresh)
	}
	if s.Compare {
		s.compare(fresh)
	}
	s.History = append(s.History, fresh[0])
	for _, id := range s.Outcome.Patched {
		s.History = append(s.History, history.NewPatch(id, s.Now))
	}
	s.History = append(s.History, fresh[1:]...)
	s.History = append(s.History, Record(s.Outcome.Actions, s.Now)...)
	s.History = append(s.History, &history.OrchestratorCompleted{Header: history.NewHeader(s.Now)})
	s.Actions = append(s.Actions, s.Outcome.Actions...)
	if !s.Cached {
		s.Evict()
	}
	return s.Outcome.Actions
}

// replay runs an episode in a new execution.
func (s *Stage) replay(fresh []history.Event) (*replay.Execution, replay.Outcome) {
	x := replay.New(s.Instance, s.code)
	outcome := x.Episode(s.History, fresh)
	if fits, o := x.Refit(s.History, fresh); fits != nil {
		x.Close()
		return fits, o
	}
	return x, outcome
}

// compare fails the test if a replay from the start has another outcome.
func (s *Stage) compare(fresh []history.Event) {
	s.tb.Helper()
	other, got := s.replay(fresh)
	defer other.Close()
	withoutStacks(s.Outcome.Actions)
	withoutStacks(got.Actions)
	if !reflect.DeepEqual(got, s.Outcome) {
		s.tb.Fatalf("a replay from the start decides\n%s\nthe execution in memory decided\n%s", Describe(got.Actions), Describe(s.Outcome.Actions))
	}
}

// withoutStacks replaces the stack traces of panics, whose goroutine addresses differ from run
// to run. Only the presence of a trace is compared.
func withoutStacks(actions []replay.Action) {
	for _, a := range actions {
		if c, ok := a.(*replay.Complete); ok && c.Failure != nil && c.Failure.StackTrace != nil {
			c.Failure.StackTrace = new("stack")
		}
	}
}

// End returns the action that ended the execution, or nil if it has not ended.
func (s *Stage) End() *replay.Complete {
	if len(s.Actions) == 0 {
		return nil
	}
	end, _ := s.Actions[len(s.Actions)-1].(*replay.Complete)
	return end
}

// Output returns the result of the execution. It fails the test if the execution has not ended
// with the given status.
func (s *Stage) Output(status history.RuntimeStatus) string {
	s.tb.Helper()
	end := s.End()
	if end == nil || end.Status != status {
		s.tb.Fatalf("ended as %s, want %s", Describe(s.Actions), status)
	}
	if end.Result == nil {
		return "<nil>"
	}
	return *end.Result
}

// Record returns the events that record actions in a history.
func Record(actions []replay.Action, now time.Time) []history.Event {
	events := make([]history.Event, 0, len(actions))
	for _, a := range actions {
		h := history.NewHeader(now)
		h.EventID = a.ActionID()
		switch a := a.(type) {
		case *replay.ScheduleTask:
			events = append(events, &history.TaskScheduled{Header: h, Name: a.Name, Version: a.Version})
		case *replay.CreateTimer:
			events = append(events, &history.TimerCreated{Header: h, FireAt: a.FireAt})
		case *replay.CreateSubOrchestration:
			events = append(events, &history.SubOrchestrationInstanceCreated{Header: h, Name: a.Name, InstanceID: a.InstanceID})
		case *replay.SendEvent:
			events = append(events, &history.EventSent{Header: h, InstanceID: a.InstanceID, Name: a.Name})
		case *replay.Complete:
			events = append(events, &history.ExecutionCompleted{Header: h, Status: a.Status, Result: a.Result, Failure: a.Failure})
		}
	}
	return events
}

// Describe returns actions as text, one per line.
func Describe(actions []replay.Action) string {
	text := ""
	for _, a := range actions {
		switch a := a.(type) {
		case *replay.ScheduleTask:
			text += fmt.Sprintf("%d task %s %s\n", a.ID, a.Name, show(a.Input))
		case *replay.CreateTimer:
			text += fmt.Sprintf("%d timer %v\n", a.ID, a.FireAt.Sub(Epoch))
		case *replay.CreateSubOrchestration:
			text += fmt.Sprintf("%d child %s %s %s\n", a.ID, a.Name, a.InstanceID, show(a.Input))
		case *replay.SendEvent:
			text += fmt.Sprintf("%d send %s to %s %s\n", a.ID, a.Name, a.InstanceID, show(a.Input))
		case *replay.Complete:
			text += fmt.Sprintf("%d %s %s\n", a.ID, a.Status, show(a.Result))
		}
	}
	return text
}

func show(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

// Done returns the event that completes an activity. Result is JSON; empty means no
// result.
func Done(id int, result string) *history.TaskCompleted {
	e := &history.TaskCompleted{Header: history.NewHeader(Epoch), TaskScheduledID: id}
	if result != "" {
		e.Result = &result
	}
	return e
}

// Failed returns the event that fails an activity with the given message.
func Failed(id int, message string) *history.TaskFailed {
	return &history.TaskFailed{
		Header: history.NewHeader(Epoch), TaskScheduledID: id, Reason: &message,
		Failure: &history.FailureDetails{ErrorType: "T", ErrorMessage: message},
	}
}

// Fired returns the event that fires a timer.
func Fired(id int) *history.TimerFired {
	return &history.TimerFired{Header: history.NewHeader(Epoch), TimerID: id}
}

// Raised returns an external event. Payload is JSON; empty means no payload.
func Raised(name, payload string) *history.EventRaised {
	e := &history.EventRaised{Header: history.NewHeader(Epoch), Name: name}
	if payload != "" {
		e.Input = &payload
	}
	return e
}
