package durable_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

func TestMap_LimitsConcurrentCalls(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, in []string) ([]int, error) { return durable.Map(ctx, count, in, 2) })
	wantActions(t, s.Start([]string{"a", "bb", "ccc", "dddd"}), `0 task Count ["a"]`, `1 task Count ["bb"]`)
	wantActions(t, s.Episode(done(1, "2")), `2 task Count ["ccc"]`)
	s.Evict()
	wantActions(t, s.Episode(failed(0, "no"), done(2, "3")), `3 task Count ["dddd"]`)
	s.Episode(done(3, "4"))
	wantFailure(t, s, "Task 'Count' (#0) failed with an unhandled exception: no")
}

func TestMap_ReturnsResultsInTheOrderOfTheInputs(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{-1, 0, 1, 2, 3, 9} {
		s := stage(t, func(ctx *durable.Context, in []string) ([]int, error) {
			return durable.Map(ctx, count, in, limit, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second})
		})
		s.Start([]string{"a", "b", "c"})
		for pending := map[int]int{}; s.End() == nil; {
			// Complete the newest scheduled task that is not complete.
			for id := len(s.Actions) - 1; id >= 0; id-- {
				if _, ok := pending[id]; !ok {
					pending[id] = id
					s.Episode(done(id, fmt.Sprint(id)))
					break
				}
			}
		}
		if got := s.Output(history.Completed); got != "[0,1,2]" {
			t.Errorf("limit %d: output is %s, want [0,1,2]", limit, got)
		}
	}
	empty := stage(t, func(ctx *durable.Context, in []string) ([]int, error) { return durable.Map(ctx, count, in, 2) })
	wantActions(t, empty.Start(nil), "0 Completed []")
}

func TestFanOut_Of10000(t *testing.T) {
	t.Parallel()
	const n = 10_000
	for _, c := range []struct {
		name string
		main func(*durable.Context, durable.Void) (int, error)
		done func(id int) history.Event
	}{
		{"activities", func(ctx *durable.Context, _ durable.Void) (int, error) {
			all, err := durable.Map(ctx, count, make([]string, n), 0)
			return len(all), err
		}, func(id int) history.Event { return done(id, "1") }},
		{"sub-orchestrations", func(ctx *durable.Context, _ durable.Void) (int, error) {
			tasks := make([]*durable.Task[string], n)
			for i := range tasks {
				tasks[i] = durable.CallSubOrchestrator(ctx, greet, "a")
			}
			all, err := durable.AwaitAll(ctx, tasks...)
			return len(all), err
		}, func(id int) history.Event { return childDone(id, `"x"`) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stageOf(t, authors(durable.Orchestrator("Greet", greet), durable.Orchestrator("Main", c.main)))
			if got := len(s.Start(nil)); got != n {
				t.Fatalf("%d actions, want 10000", got)
			}
			for from := 0; from < n; from += 2_500 {
				var events []history.Event
				for id := from; id < from+2_500; id++ {
					events = append(events, c.done(n-1-id))
				}
				s.Episode(events...)
			}
			wantOutput(t, s, fmt.Sprint(n))
		})
	}
}

func TestFanOut_OfChildrenOnAHub(t *testing.T) {
	for _, n := range []int{1_000, testshare.Amount(10_000, 2_000)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { fanOutOnAHub(t, n) })
	}
}

func fanOutOnAHub(t *testing.T, n int) {
	synctest.Test(t, func(t *testing.T) {
		main := func(ctx *durable.Context, _ durable.Void) (int, error) {
			tasks := make([]*durable.Task[string], n)
			for i := range tasks {
				tasks[i] = durable.CallSubOrchestrator(ctx, greet, "Ada")
			}
			sum := 0
			for task := range durable.AsCompleted(ctx, tasks...) {
				s, err := task.Await()
				if err != nil {
					return 0, err
				}
				sum += len(s)
			}
			return sum, nil
		}
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Orchestrator("Greet", greet))
		defer run(t, h, r, durable.Config{})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), main, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != n*len("Hello, Ada!") {
			t.Errorf("output %d, %v", out, err)
		}
	})
}
