package provider_test

import (
	"context"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// A step is recorded after the episode that decided it, together with its result.
func TestPlanRewind_TreatsAStepAsADecisionOfTheEpisodeThatDecidedIt(t *testing.T) {
	t.Parallel()
	episode := func(minute int, events ...history.Event) []history.Event {
		head := history.Header{EventID: history.NoEventID, Timestamp: noon.Add(time.Duration(minute) * time.Minute)}
		all := append([]history.Event{&history.OrchestratorStarted{Header: head}}, events...)
		return append(all, &history.OrchestratorCompleted{Header: head})
	}
	step := func(id, minute int) history.Event {
		return &history.TaskScheduled{Header: history.Header{EventID: id, Timestamp: noon.Add(time.Duration(minute) * time.Minute)}, Name: "S"}
	}
	cat := func(episodes ...[]history.Event) (all []history.Event) {
		for _, e := range episodes {
			all = append(all, e...)
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		events []history.Event
		want   []int
	}{
		{
			"the last step failed",
			cat(
				episode(0, started("p")),                                   // 0 1 2
				episode(1, step(0, 0), done(0)),                            // 3 4 5 6
				episode(2, step(1, 1), failed(1), ends(2, history.Failed)), // 7 8 9 10 11
			),
			[]int{8, 9, 10},
		},
		{
			"another step handled the failure",
			cat(
				episode(0, started("p")),                                   // 0 1 2
				episode(1, step(0, 0), failed(0)),                          // 3 4 5 6
				episode(2, step(1, 1), failed(1), ends(2, history.Failed)), // 7 8 9 10 11
			),
			[]int{8, 9, 10},
		},
		{
			"a step of an earlier episode did not handle the failure",
			cat(
				episode(0, started("p"), task(0)),                        // 0 1 2 3
				episode(1, failed(0)),                                    // 4 5 6
				episode(2, step(1, 0), done(1), ends(2, history.Failed)), // 7 8 9 10 11
			),
			[]int{2, 5, 10},
		},
		{
			"a step that ran at most once has no outcome",
			cat(
				episode(0, started("p"), task(0), history.NewStepStart(0, noon)), // 0 1 2 3 4
				episode(1, failed(0), ends(1, history.Failed)),                   // 5 6 7 8
			),
			[]int{2, 6, 7},
		},
		{
			"the start of a step that runs at most once did not handle a failure",
			cat(
				episode(0, started("p"), task(0)),                                // 0 1 2 3
				episode(1, failed(0), step(1, 0), history.NewStepStart(1, noon)), // 4 5 6 7 8
				episode(2, done(1), ends(2, history.Failed)),                     // 9 10 11 12
			),
			[]int{2, 5, 11},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			plan, err := provider.PlanRewind(context.Background(), "p", "again", later, func(context.Context, string) ([]history.Event, error) { return tt.events, nil })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plan.Executions[0].Replace, tt.want); diff != "" {
				t.Errorf("events to replace (-got +want):\n%s", diff)
			}
			if left := history.InterruptedSteps(plan.Executions[0].Apply(tt.events)); len(left) > 0 {
				t.Errorf("the rewound history has interrupted steps: %v", left)
			}
		})
	}
}
