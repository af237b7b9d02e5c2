package dispatch_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 123456700, time.UTC)

func action(id int) history.Header { return history.Header{EventID: id, Timestamp: noon} }

var (
	tags   = map[string]string{"team": "a", "tier": "1"}
	parent = &history.ParentInstance{
		Name: "P", Version: "2", Instance: history.OrchestrationInstance{InstanceID: "p", ExecutionID: "pe"}, TaskScheduleID: 7,
	}
	failure = &history.FailureDetails{ErrorType: "T", ErrorMessage: "broke"}
)

// The table of DurableTask.Core/TaskOrchestrationDispatcher.cs, Process…Decision: each action
// becomes one event with the action's number and one message.
func TestRecord_TurnsActionsIntoEventsAndMessages(t *testing.T) {
	start := &history.ExecutionStarted{Instance: here, Name: "O", Version: "1", Tags: tags}
	fireAt := noon.Add(time.Hour)
	child := history.OrchestrationInstance{InstanceID: "c", ExecutionID: dispatchedChildID(t, start, 3)}

	for _, test := range []struct {
		name   string
		action replay.Action
		want   provider.Checkpoint
	}{
		{
			name:   "the history of a task has no input, and its message has the orchestration's tags",
			action: &replay.ScheduleTask{ID: 1, Name: "A", Version: "v", Input: new("[1]"), Tags: map[string]string{"k": "v"}},
			want: provider.Checkpoint{
				NewEvents: []history.Event{&history.TaskScheduled{Header: action(1), Name: "A", Version: "v", Tags: map[string]string{"k": "v"}}},
				Activities: []provider.TaskMessage{{
					Event:  &history.TaskScheduled{Header: action(1), Name: "A", Version: "v", Input: new("[1]"), Tags: map[string]string{"k": "v"}},
					Target: here, Tags: tags,
				}},
			},
		},
		{
			name:   "a timer fires in its own execution, in units of 100 ns",
			action: &replay.CreateTimer{ID: 2, FireAt: fireAt.Add(42).In(time.FixedZone("", 3600))},
			want: provider.Checkpoint{
				NewEvents: []history.Event{&history.TimerCreated{Header: action(2), FireAt: fireAt}},
				Timers: []provider.TaskMessage{{
					Event: &history.TimerFired{Header: history.NewHeader(noon), TimerID: 2, FireAt: fireAt}, Target: here,
				}},
			},
		},
		{
			name:   "a child inherits tags that it does not set, and has no generation",
			action: &replay.CreateSubOrchestration{ID: 3, Name: "C", Version: "v1", InstanceID: "c", Input: new("2"), Tags: map[string]string{"tier": "2"}},
			want: provider.Checkpoint{
				NewEvents: []history.Event{&history.SubOrchestrationInstanceCreated{
					Header: action(3), Name: "C", Version: "v1", InstanceID: "c", Tags: map[string]string{"team": "a", "tier": "2"},
				}},
				Messages: []provider.TaskMessage{{
					Event: &history.ExecutionStarted{
						Header: history.NewHeader(noon), Instance: child, Name: "C", Version: "v1", Input: new("2"),
						Parent: &history.ParentInstance{Name: "O", Version: "1", Instance: here, TaskScheduleID: 3},
						Tags:   map[string]string{"team": "a", "tier": "2"},
					},
					Target: child, Tags: tags,
				}},
			},
		},
		{
			name:   "an event names no execution of the receiver",
			action: &replay.SendEvent{ID: 4, InstanceID: "r", Name: "go", Input: new("3")},
			want: provider.Checkpoint{
				NewEvents: []history.Event{&history.EventSent{Header: action(4), InstanceID: "r", Name: "go", Input: new("3")}},
				Messages: []provider.TaskMessage{{
					Event:  &history.EventRaised{Header: history.NewHeader(noon), Name: "go", Input: new("3")},
					Target: history.OrchestrationInstance{InstanceID: "r"},
				}},
			},
		},
		{
			name:   "an end without a parent sends no message",
			action: &replay.Complete{ID: 5, Status: history.Failed, Result: new("broke"), Failure: failure},
			want: provider.Checkpoint{
				NewEvents: []history.Event{&history.ExecutionCompleted{Header: action(5), Status: history.Failed, Result: new("broke"), Failure: failure}},
			},
		},
		{
			name:   "a continue-as-new is not recorded",
			action: &replay.Complete{ID: 5, Status: history.ContinuedAsNew, Result: new("4")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, end, err := dispatch.Record(start, []replay.Action{test.action}, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("checkpoint (-want +got):\n%s", diff)
			}
			if _, ends := test.action.(*replay.Complete); ends != (end != nil) {
				t.Errorf("end is %v", end)
			}
		})
	}
}

// .NET searches for an answer by its name. The copy is inserted after the answer. If the answer
// arrived in an earlier episode, the copy comes before the events of the current one.
func TestRecord_AddsAnswersUnderTheRecordedNames(t *testing.T) {
	answer := &history.EventRaised{Name: "lost", Input: new("7")}
	named := &history.EventRaised{Name: "counts", Input: new("7")}
	begin, other := &history.OrchestratorStarted{}, &history.TaskCompleted{TaskScheduledID: 3}
	for _, c := range []struct{ events, want []history.Event }{
		{[]history.Event{begin, other, answer}, []history.Event{begin, other, answer, named}},
		{[]history.Event{begin, other}, []history.Event{begin, named, other}},
	} {
		got := dispatch.WithAliases(slices.Clone(c.events), []replay.Alias{{Answer: answer, Name: "counts"}})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// An entity answers a lost attempt at a call. The copy of the answer under the recorded name does not change
// the length and the size of the history in a replay. The answer to the recorded attempt may arrive, too.
func TestRecord_ACopyOfAnAnswerDoesNotChangeTheHistoryLength(t *testing.T) {
	var seen []int
	code := func(x *replay.Execution, _ *string) (*string, error) {
		var begin, call, end replay.Future
		look := func(f *replay.Future) {
			f.Await()
			seen = append(seen, x.HistoryLength(), x.HistorySize())
		}
		x.WaitEvent(&begin, "go")
		look(&begin)
		x.CallEntity(&call, entity.ID{Name: "counter", Key: "a"}, "get", nil)
		look(&call)
		x.WaitEvent(&end, "end")
		look(&end)
		return nil, nil
	}
	start := func(later time.Duration) *replaytest.Stage {
		s := replaytest.New(t, "O", code)
		s.Compare = false // the code runs once
		s.Start(nil)
		s.Now = s.Now.Add(later)
		return s
	}
	begin, end := replaytest.Raised("go", ""), replaytest.Raised("end", "")
	answer := func(later time.Duration) *history.EventRaised {
		r, err := entity.DecodeRequest(start(later).Episode(begin)[0].(*replay.SendEvent).Input)
		if err != nil {
			t.Fatal(err)
		}
		return replaytest.Raised(r.ID, entity.Response{Result: new("7"), Origin: r.Origin}.Encode())
	}
	lost, recorded := answer(0), answer(time.Minute)
	for name, episodes := range map[string][][]history.Event{
		"the answer arrives after the call":              {{begin}, {lost}, {end}},
		"the answer arrives before the call":             {{lost}, {begin}, {end}},
		"the answer arrives in the episode":              {{lost, begin}, {end}},
		"both answers arrive":                            {{begin}, {lost}, {recorded}, {end}},
		"both answers arrive together":                   {{begin}, {lost, recorded}, {end}},
		"both answers arrive before the call":            {{lost}, {recorded}, {begin}, {end}},
		"the answer to the recorded attempt comes first": {{begin}, {recorded}, {lost}, {end}},
		"the answer to the lost attempt comes twice":     {{begin}, {lost}, {lost}, {end}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(time.Minute)
			seen = nil
			aliases := 0
			for _, events := range episodes {
				past := len(s.History)
				s.Episode(events...)
				s.History = slices.Concat(s.History[:past], dispatch.WithAliases(s.History[past:], s.Outcome.Aliases))
				aliases += len(s.Outcome.Aliases)
			}
			live := seen
			seen = nil
			x := replay.New(s.Instance, code)
			defer x.Close()
			x.Episode(s.History, nil)
			if !slices.Equal(seen, live) || len(live) != 6 {
				t.Errorf("a replay has lengths and sizes %v, the execution had %v, with %d copies", seen, live, aliases)
			}
		})
	}
}

// DurableTask.Core/TaskOrchestrationDispatcher.cs, ProcessWorkflowCompletedTaskDecision.
func TestRecord_ReportsTheEndOfAChildToItsParent(t *testing.T) {
	head := history.NewHeader(noon)
	for _, test := range []struct {
		name string
		end  replay.Complete
		tags map[string]string
		want history.Event // nil: no message
	}{
		{
			name: "completed", end: replay.Complete{Status: history.Completed, Result: new("1")},
			want: &history.SubOrchestrationInstanceCompleted{Header: head, TaskScheduledID: 7, Result: new("1")},
		},
		{
			name: "failed", end: replay.Complete{Status: history.Failed, Result: new("broke"), Failure: failure},
			want: &history.SubOrchestrationInstanceFailed{Header: head, TaskScheduledID: 7, Reason: new("broke"), Failure: failure},
		},
		{
			name: "terminated", end: replay.Complete{Status: history.Terminated, Result: new("enough")},
			want: &history.SubOrchestrationInstanceFailed{Header: head, TaskScheduledID: 7, Reason: new("enough")},
		},
		{name: "canceled", end: replay.Complete{Status: history.Canceled}},
		{name: "continued as new", end: replay.Complete{Status: history.ContinuedAsNew}},
		{
			name: "completed, fire and forget", end: replay.Complete{Status: history.Completed},
			tags: map[string]string{"FireAndForget": ""},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := &history.ExecutionStarted{Instance: here, Name: "C", Parent: parent, Tags: test.tags}
			cp, _, err := dispatch.Record(start, []replay.Action{&test.end}, noon)
			if err != nil {
				t.Fatal(err)
			}
			var want []provider.TaskMessage
			if test.want != nil {
				want = []provider.TaskMessage{{Event: test.want, Target: parent.Instance}}
			}
			if diff := cmp.Diff(want, cp.Messages); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecord_DerivesChildIDsFromTheParentsExecutionAndTheAction(t *testing.T) {
	start := &history.ExecutionStarted{Instance: here, Name: "O"}
	cp, _, err := dispatch.Record(start, []replay.Action{&replay.CreateSubOrchestration{ID: 12, Name: "C"}}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cp.Messages[0].Target.InstanceID, "e1:12"; got != want {
		t.Errorf("child is %q, want %q", got, want)
	}
	if got := cp.NewEvents[0].(*history.SubOrchestrationInstanceCreated).InstanceID; got != "e1:12" {
		t.Errorf("history names %q", got)
	}
}

func TestRecord_ARepeatedStartOfAChildHasTheSameExecutionID(t *testing.T) {
	start := &history.ExecutionStarted{Instance: here, Name: "O"}
	first, again := dispatchedChildID(t, start, 3), dispatchedChildID(t, start, 3)
	if first != again {
		t.Errorf("the same child has the executions %s and %s", first, again)
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(first) {
		t.Errorf("%q is not a GUID in the format N", first)
	}
	others := map[string]bool{first: true}
	for _, other := range []string{
		dispatchedChildID(t, start, 4),
		dispatchedChildID(t, &history.ExecutionStarted{Instance: before}, 3),
		dispatchedChildID(t, &history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "j", ExecutionID: "e1"}}, 3),
	} {
		if others[other] {
			t.Errorf("two children have the same execution %s", other)
		}
		others[other] = true
	}
}

func dispatchedChildID(t *testing.T, start *history.ExecutionStarted, id int) string {
	t.Helper()
	cp, _, err := dispatch.Record(start, []replay.Action{&replay.CreateSubOrchestration{ID: id, Name: "C"}}, noon)
	if err != nil {
		t.Fatal(err)
	}
	return cp.Messages[0].Target.ExecutionID
}

// DurableTask.Core/OrchestrationTags.cs, MergeTags.
func TestRecord_ChildrenDoNotInheritFireAndForget(t *testing.T) {
	for _, test := range []struct {
		name               string
		own, parents, want map[string]string
	}{
		{"neither has tags", nil, nil, nil},
		{"only the child has tags", map[string]string{"a": "1"}, nil, map[string]string{"a": "1"}},
		{"the parent's FireAndForget stays with it", nil, map[string]string{"a": "1", "FireAndForget": ""}, map[string]string{"a": "1"}},
		{
			"the child's tags take precedence",
			map[string]string{"FireAndForget": "", "a": "2"},
			map[string]string{"a": "1"},
			map[string]string{"FireAndForget": "", "a": "2"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := &history.ExecutionStarted{Instance: here, Tags: test.parents}
			cp, _, err := dispatch.Record(start, []replay.Action{&replay.CreateSubOrchestration{Name: "C", Tags: test.own}}, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, cp.Messages[0].Event.(*history.ExecutionStarted).Tags); diff != "" {
				t.Errorf("tags (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecord_KeepsTheOrderOfActions(t *testing.T) {
	start := &history.ExecutionStarted{Instance: here}
	cp, _, err := dispatch.Record(start, []replay.Action{
		&replay.CreateTimer{ID: 0}, &replay.ScheduleTask{ID: 1}, &replay.SendEvent{ID: 2}, &replay.ScheduleTask{ID: 3},
		&replay.Complete{ID: 4, Status: history.Completed},
	}, noon)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range cp.NewEvents {
		got = append(got, e.Type().String())
		if e.Head().EventID != i {
			t.Errorf("%v has the number %d, want %d", e.Type(), e.Head().EventID, i)
		}
	}
	want := []string{"TimerCreated", "TaskScheduled", "EventSent", "TaskScheduled", "ExecutionCompleted"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestRecord_RefusesActionsAfterTheEnd(t *testing.T) {
	start := &history.ExecutionStarted{Instance: here}
	_, _, err := dispatch.Record(start, []replay.Action{&replay.Complete{ID: 0}, &replay.ScheduleTask{ID: 1}}, noon)
	if err == nil {
		t.Error("no error")
	}
}

// DurableTask.Core/TaskOrchestrationDispatcher.cs, ProcessWorkflowCompletedTaskDecision and
// OnProcessWorkItemAsync.
func TestNextGeneration_KeepsNameTagsParentAndTrace(t *testing.T) {
	trace := &history.TraceContext{TraceParent: "00-1-2-01"}
	start := &history.ExecutionStarted{
		Header: history.NewHeader(noon.Add(-time.Hour)), Instance: before, Parent: parent, Name: "O", Version: "1",
		Input: new("1"), Tags: tags, Generation: new(3), ParentTraceContext: trace, ScheduledStart: noon.Add(-time.Minute),
	}
	unread := &history.EventRaised{Header: history.NewHeader(noon.Add(-time.Second)), Name: "go", Input: new("x")}
	hold := &history.ExecutionSuspended{Header: history.NewHeader(noon), Reason: new("wait")}
	end := &replay.Complete{
		Status: history.ContinuedAsNew, Result: new("2"), CarryOver: []*history.EventRaised{unread}, Suspended: hold,
	}
	played := func(at time.Time) history.Header {
		return history.Header{EventID: history.NoEventID, Timestamp: at, IsPlayed: true}
	}
	want := []history.Event{
		&history.OrchestratorStarted{Header: history.NewHeader(noon)},
		&history.ExecutionStarted{
			Header: played(noon), Instance: here, Parent: parent, Name: "O", Version: "1", Input: new("2"),
			Tags: tags, ParentTraceContext: trace,
		},
		&history.EventRaised{Header: played(noon.Add(-time.Second)), Name: "go", Input: new("x")},
		&history.ExecutionSuspended{Header: played(noon), Reason: new("wait")},
		&history.OrchestratorCompleted{Header: played(noon)},
	}
	if diff := cmp.Diff(want, dispatch.NextGeneration(start, end, "e1", noon)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if unread.IsPlayed || hold.IsPlayed {
		t.Error("events of the previous generation were changed")
	}
}
