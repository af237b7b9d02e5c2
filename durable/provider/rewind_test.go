package provider_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

var (
	noon  = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	later = noon.Add(time.Hour)
)

// script builds a history.
type script struct{ events []history.Event }

func plain() history.Header        { return history.Header{EventID: history.NoEventID, Timestamp: noon} }
func action(id int) history.Header { return history.Header{EventID: id, Timestamp: noon} }
func (s *script) add(e ...history.Event) *script {
	s.events = append(s.events, e...)
	return s
}

// episode adds an episode with the events that arrived and the events that were decided.
func (s *script) episode(events ...history.Event) *script {
	return s.add(&history.OrchestratorStarted{Header: plain()}).add(events...).add(&history.OrchestratorCompleted{Header: plain()})
}

func instance(id string) history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: id, ExecutionID: id + "-e"}
}

func started(id string) history.Event {
	return &history.ExecutionStarted{Header: plain(), Instance: instance(id), Name: "O"}
}

func startedBy(id, parent string, task int) history.Event {
	return &history.ExecutionStarted{
		Header: plain(), Instance: instance(id), Name: "Child",
		Parent: &history.ParentInstance{Instance: instance(parent), TaskScheduleID: task},
	}
}

func task(id int) history.Event { return &history.TaskScheduled{Header: action(id), Name: "A"} }
func done(id int) history.Event { return &history.TaskCompleted{Header: plain(), TaskScheduledID: id} }

func failed(id int) history.Event { return &history.TaskFailed{Header: plain(), TaskScheduledID: id} }
func fired(id int) history.Event  { return &history.TimerFired{Header: plain(), TimerID: id} }
func childDone(id int) history.Event {
	return &history.SubOrchestrationInstanceCompleted{Header: plain(), TaskScheduledID: id}
}

func childFailed(id int) history.Event {
	return &history.SubOrchestrationInstanceFailed{Header: plain(), TaskScheduledID: id}
}

func timer(id int, at time.Time) history.Event {
	return &history.TimerCreated{Header: action(id), FireAt: at}
}

func child(id int, instanceID string) history.Event {
	return &history.SubOrchestrationInstanceCreated{Header: action(id), Name: "Child", InstanceID: instanceID}
}

func ends(id int, status history.RuntimeStatus) history.Event {
	return &history.ExecutionCompleted{Header: action(id), Status: status, Result: new(`"r"`)}
}

// Short forms of a changed execution and of a message.
type (
	change struct {
		ID           string
		Replace      []int
		MarkChildren []int
	}
	sent struct {
		To, Event string
		TaskID    int
	}
)

func TestPlanRewind(t *testing.T) {
	failedChild := new(script).
		episode(startedBy("c", "p", 0), task(0)).   // 0 1 2 3
		episode(failed(0), ends(1, history.Failed)) // 4 5 6 7
	for _, tt := range []struct {
		name      string
		histories map[string]*script
		changes   []change
		sent      []sent
	}{
		{
			"replaces the failure, the event that scheduled it, and the end",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0)).               // 0 1 2 3
				episode(done(0), task(1)).                    // 4 5 6 7
				episode(failed(1), ends(2, history.Failed))}, // 8 9 10 11
			[]change{{ID: "p", Replace: []int{6, 9, 10}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"replaces all failures of a fan-out",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1), task(2)). // 0 1 2 3 4 5
				episode(failed(0)).                               // 6 7 8
				episode(done(1)).                                 // 9 10 11
				episode(failed(2), ends(3, history.Failed))},     // 12 13 14 15
			[]change{{ID: "p", Replace: []int{2, 4, 7, 13, 14}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"schedules pending work again",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1), timer(2, noon), timer(3, later.Add(time.Hour))). // 0 1 2 3 4 5 6
				episode(failed(0), ends(4, history.Failed))},                                            // 7 8 9 10
			[]change{{ID: "p", Replace: []int{2, 3, 4, 8, 9}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"keeps the failures that were retried, and replaces the last attempt with its timer of zero delay",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0)).              // 0 1 2 3
				episode(failed(0), timer(1, later)).         // 4 5 6 7
				episode(fired(1), task(2)).                  // 8 9 10 11
				episode(failed(2), timer(3, noon)).          // 12 13 14 15
				episode(fired(3), ends(4, history.Failed))}, // 16 17 18 19
			[]change{{ID: "p", Replace: []int{10, 13, 14, 17, 18}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"matches the retries of several activities by the order of their timers",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1)).                                                // 0 1 2 3 4
				episode(done(5), failed(0), failed(1), timer(2, later.Add(time.Hour)), timer(3, noon)). // 5 6 7 8 9 10 11
				episode(fired(3), ends(4, history.Failed))},                                            // 12 13 14 15
			[]change{{ID: "p", Replace: []int{3, 8, 10, 13, 14}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"keeps a failure that was handled",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0)).               // 0 1 2 3
				episode(failed(0), task(1)).                  // 4 5 6 7
				episode(failed(1), ends(2, history.Failed))}, // 8 9 10 11
			[]change{{ID: "p", Replace: []int{6, 9, 10}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"keeps a failure that was handled after the last attempt of a retry",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0)).               // 0 1 2 3
				episode(failed(0), timer(1, noon)).           // 4 5 6 7
				episode(fired(1), task(2)).                   // 8 9 10 11
				episode(done(2), task(3)).                    // 12 13 14 15
				episode(failed(3), ends(4, history.Failed))}, // 16 17 18 19
			[]change{{ID: "p", Replace: []int{14, 17, 18}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"replaces the last attempts of a fan-out, whose timers and failures arrive together",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1)).      // 0 1 2 3 4
				episode(failed(0), timer(2, noon)).           // 5 6 7 8
				episode(fired(2), failed(1), timer(3, noon)). // 9 10 11 12 13
				episode(fired(3), ends(4, history.Failed))},  // 14 15 16 17
			[]change{{ID: "p", Replace: []int{2, 3, 6, 7, 10, 11, 12, 15, 16}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"replaces the last attempt of one activity, and keeps the retry of another in the same episode",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1)).       // 0 1 2 3 4
				episode(failed(0), timer(2, noon)).            // 5 6 7 8
				episode(fired(2), failed(1), timer(3, later)). // 9 10 11 12 13
				episode(fired(3), task(4)).                    // 14 15 16 17
				episode(done(4), ends(5, history.Failed))},    // 18 19 20 21
			[]change{{ID: "p", Replace: []int{2, 6, 7, 10, 20}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"keeps a failure that was handled while another last attempt failed",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1)).               // 0 1 2 3 4
				episode(failed(0), timer(2, noon)).                    // 5 6 7 8
				episode(fired(2), failed(1), timer(3, noon), task(4)). // 9 10 11 12 13 14
				episode(done(4)).                                      // 15 16 17
				episode(fired(3), ends(5, history.Failed))},           // 18 19 20 21
			[]change{{ID: "p", Replace: []int{3, 11, 12, 19, 20}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"replaces the last attempts of a fan-out of which only some are retried",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1), task(2)).        // 0 1 2 3 4 5
				episode(failed(0), timer(3, noon)).                      // 6 7 8 9
				episode(fired(3), failed(1), failed(2), timer(4, noon)). // 10 11 12 13 14 15
				episode(fired(4), ends(5, history.Failed))},             // 16 17 18 19
			[]change{{ID: "p", Replace: []int{2, 3, 4, 7, 8, 11, 12, 13, 18}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"follows .NET if it is unclear whether a failure was handled",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0), task(1)).      // 0 1 2 3 4
				episode(failed(0), done(1), task(2)).         // 5 6 7 8 9
				episode(failed(2), ends(3, history.Failed))}, // 10 11 12 13
			[]change{{ID: "p", Replace: []int{2, 6, 8, 11, 12}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"replaces only the end if the orchestrator itself failed",
			map[string]*script{"p": new(script).
				episode(started("p"), task(0)).
				episode(done(0), ends(1, history.Failed))},
			[]change{{ID: "p", Replace: []int{6}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"rewinds a failed child first and leaves the parent waiting for it",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "c")).
					episode(childFailed(0), ends(1, history.Failed)),
				"c": failedChild,
			},
			[]change{{ID: "c", Replace: []int{2, 5, 6}}, {ID: "p", Replace: []int{5, 6}, MarkChildren: []int{2}}},
			[]sent{{To: "c", Event: "GenericEvent"}},
		},
		{
			"does not change a completed child",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "d")).
					episode(childDone(0), child(1, "c")).
					episode(childFailed(1), ends(2, history.Failed)),
				"d": new(script).episode(startedBy("d", "p", 0), ends(0, history.Completed)),
				"c": new(script).episode(startedBy("c", "p", 1), ends(0, history.Failed)),
			},
			[]change{{ID: "c", Replace: []int{2}}, {ID: "p", Replace: []int{9, 10}, MarkChildren: []int{6}}},
			[]sent{{To: "c", Event: "GenericEvent"}},
		},
		{
			"also wakes the parent if it has own work to repeat",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "c"), task(1)).
					episode(childFailed(0), ends(2, history.Failed)),
				"c": failedChild,
			},
			[]change{{ID: "c", Replace: []int{2, 5, 6}}, {ID: "p", Replace: []int{3, 6, 7}, MarkChildren: []int{2}}},
			[]sent{{To: "c", Event: "GenericEvent"}, {To: "p", Event: "GenericEvent"}},
		},
		{
			"continues a terminated child",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "c")).
					episode(childFailed(0), ends(1, history.Failed)),
				"c": new(script).
					episode(startedBy("c", "p", 0), task(0)).
					episode(&history.ExecutionTerminated{Header: plain()}, ends(1, history.Terminated)),
			},
			[]change{{ID: "c", Replace: []int{2, 5, 6}}, {ID: "p", Replace: []int{5, 6}, MarkChildren: []int{2}}},
			[]sent{{To: "c", Event: "GenericEvent"}},
		},
		{
			"starts a missing child again",
			map[string]*script{"p": new(script).
				episode(started("p"), child(0, "c")).
				episode(childFailed(0), ends(1, history.Failed))},
			[]change{{ID: "p", Replace: []int{2, 5, 6}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"does not change another instance that has the child's ID",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "c")).
					episode(childFailed(0), ends(1, history.Failed)),
				"c": new(script).episode(started("c"), ends(0, history.Failed)),
			},
			[]change{{ID: "p", Replace: []int{2, 5, 6}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"sends the result of a completed child again",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "c")).
					episode(childFailed(0), ends(1, history.Failed)),
				"c": new(script).episode(startedBy("c", "p", 0), ends(0, history.Completed)),
			},
			[]change{{ID: "p", Replace: []int{5, 6}, MarkChildren: []int{2}}},
			[]sent{{To: "p", Event: "SubOrchestrationInstanceCompleted"}},
		},
		{
			"sends a child's result that arrived after the parent had failed",
			map[string]*script{
				"p": new(script).
					episode(started("p"), task(0), child(1, "c")).
					episode(failed(0), ends(2, history.Failed)),
				"c": new(script).episode(startedBy("c", "p", 1), ends(0, history.Completed)),
			},
			[]change{{ID: "p", Replace: []int{2, 6, 7}}},
			[]sent{{To: "p", Event: "SubOrchestrationInstanceCompleted", TaskID: 1}, {To: "p", Event: "GenericEvent"}},
		},
		{
			"does not wait for fire-and-forget children",
			map[string]*script{
				"p": new(script).
					episode(started("p"), &history.SubOrchestrationInstanceCreated{
						Header: action(0), InstanceID: "c", Tags: map[string]string{"FireAndForget": ""},
					}).
					episode(ends(1, history.Failed)),
				"c": new(script).episode(startedBy("c", "p", 0), ends(0, history.Failed)),
			},
			[]change{{ID: "p", Replace: []int{5}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
		{
			"continues an interrupted rewind",
			map[string]*script{
				"p": new(script).
					episode(started("p"), child(0, "c")).
					episode(&history.GenericEvent{Header: plain()}, &history.GenericEvent{Header: action(1)}),
				"c": new(script).
					episode(startedBy("c", "p", 0), &history.GenericEvent{Header: action(0)}).
					episode(&history.GenericEvent{Header: plain()}, &history.GenericEvent{Header: action(1)}),
			},
			[]change{{ID: "p"}},
			[]sent{{To: "p", Event: "GenericEvent"}, {To: "c", Event: "GenericEvent"}},
		},
		{
			"continues a rewind that was interrupted in the middle of a history",
			map[string]*script{"p": new(script).
				episode(started("p"), &history.GenericEvent{Header: action(0)}).
				episode(failed(0), ends(1, history.Failed))},
			[]change{{ID: "p", Replace: []int{5, 6}}},
			[]sent{{To: "p", Event: "GenericEvent"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			load := func(_ context.Context, id string) ([]history.Event, error) {
				if s := tt.histories[id]; s != nil {
					return s.events, nil
				}
				return nil, nil
			}
			plan, err := provider.PlanRewind(t.Context(), "p", "why", later, load)
			if err != nil {
				t.Fatal(err)
			}
			var changes []change
			for _, x := range plan.Executions {
				if x.Instance != instance(x.Instance.InstanceID) {
					t.Errorf("execution %+v", x.Instance)
				}
				changes = append(changes, change{x.Instance.InstanceID, x.Replace, x.MarkChildren})
			}
			if diff := cmp.Diff(tt.changes, changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			var messages []sent
			for _, m := range plan.Messages {
				s := sent{To: m.Target.InstanceID, Event: m.Event.Type().String()}
				switch e := m.Event.(type) {
				case *history.GenericEvent:
					if *e.Data != "why" || m.Target.ExecutionID != "" {
						t.Errorf("message %q to execution %q", *e.Data, m.Target.ExecutionID)
					}
				case *history.SubOrchestrationInstanceCompleted:
					s.TaskID = e.TaskScheduledID
					if *e.Result != `"r"` || m.Target != instance("p") {
						t.Errorf("result %s to %+v", *e.Result, m.Target)
					}
				}
				messages = append(messages, s)
			}
			if diff := cmp.Diff(tt.sent, messages); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanRewind_AnUnknownInstanceIsNotFound(t *testing.T) {
	t.Parallel()
	none := func(context.Context, string) ([]history.Event, error) { return nil, nil }
	if _, err := provider.PlanRewind(t.Context(), "p", "", noon, none); !errors.Is(err, provider.ErrInstanceNotFound) {
		t.Errorf("error %v, want ErrInstanceNotFound", err)
	}
	broken := errors.New("broken")
	fails := func(_ context.Context, id string) ([]history.Event, error) {
		if id == "p" {
			return new(script).episode(started("p"), child(0, "c")).episode(childFailed(0), ends(1, history.Failed)).events, nil
		}
		return nil, broken
	}
	if _, err := provider.PlanRewind(t.Context(), "p", "", noon, fails); !errors.Is(err, broken) {
		t.Errorf("error %v, want the error of loading the child", err)
	}
}

// The code of such an instance continues in its critical section, but without the locks.
func TestPlanRewind_RefusesAnInstanceThatHeldLocksUntilItEnded(t *testing.T) {
	t.Parallel()
	request := &history.EventSent{Header: action(0), InstanceID: "@counter@a", Name: "op"}
	granted := &history.EventRaised{Header: plain(), Name: "33333333-3333-3333-3333-333333333333"}
	release := func(id int) history.Event {
		return &history.EventSent{Header: action(id), InstanceID: "@counter@a", Name: "release"}
	}
	locked := func(start history.Event) *script {
		return new(script).episode(start, request).episode(granted, task(1))
	}
	parent := new(script).episode(started("p"), child(0, "c")).episode(childFailed(0), ends(1, history.Failed))
	for _, tt := range []struct {
		name      string
		histories map[string]*script
		want      error
	}{
		{"an activity failed", map[string]*script{"p": locked(started("p")).episode(failed(1), release(2), ends(3, history.Failed))}, provider.ErrLocksReleased},
		{
			"an activity failed twice",
			map[string]*script{"p": locked(started("p")).episode(failed(1), timer(2, noon)).episode(fired(2), release(3), ends(4, history.Failed))},
			provider.ErrLocksReleased,
		},
		{"the code failed", map[string]*script{"p": locked(started("p")).episode(done(1), release(2), ends(3, history.Failed))}, provider.ErrLocksReleased},
		{"a child failed", map[string]*script{
			"p": parent, "c": locked(startedBy("c", "p", 0)).episode(failed(1), release(2), ends(3, history.Failed)),
		}, provider.ErrLocksReleased},
		{"a child was terminated", map[string]*script{
			"p": parent, "c": locked(startedBy("c", "p", 0)).episode(&history.ExecutionTerminated{Header: plain()}, release(2), ends(3, history.Terminated)),
		}, provider.ErrLocksReleased},
		{"the locks were released earlier", map[string]*script{"p": locked(started("p")).episode(done(1), release(2), task(3)).episode(failed(3), ends(4, history.Failed))}, nil},
		{
			"the event of an orchestration has the name of a release",
			map[string]*script{"p": new(script).episode(started("p"), task(0)).
				episode(done(0), &history.EventSent{Header: action(1), InstanceID: "o", Name: "release"}, ends(2, history.Failed))},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			load := func(_ context.Context, id string) ([]history.Event, error) { return tt.histories[id].events, nil }
			if _, err := provider.PlanRewind(t.Context(), "p", "why", later, load); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestRewoundExecution_ApplyKeepsTheHeaders(t *testing.T) {
	t.Parallel()
	events := new(script).episode(started("p"), task(0)).events
	got := provider.RewoundExecution{Replace: []int{2}}.Apply(events)
	if diff := cmp.Diff(&history.GenericEvent{Header: action(0)}, got[2]); diff != "" {
		t.Errorf("replaced event (-want +got):\n%s", diff)
	}
	if events[2].Type() != history.TypeTaskScheduled || got[1] != events[1] || len(got) != len(events) {
		t.Error("Apply changed more than the events in Replace")
	}
}
