package durable_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestAwaitAll_ReturnsValuesInOrderAndJoinsErrors(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		var tasks []*durable.Task[int]
		for _, in := range []string{"a", "b", "c", "d"} {
			tasks = append(tasks, durable.CallActivity(ctx, count, in))
		}
		values, err := durable.AwaitAll(ctx, tasks...)
		return fmt.Sprint(values), fmt.Errorf("%v: %w", values, err)
	})
	s.Start(nil)
	s.Episode(failed(3, "late"))
	s.Episode(done(2, "30"))
	s.Episode(failed(1, "early"), done(0, "10"))
	if got, want := s.Output(history.Failed), "[10 0 30 0]: Task 'Count' (#1) failed with an unhandled exception: early\n"+
		"Task 'Count' (#3) failed with an unhandled exception: late"; got != want {
		t.Errorf("failed with %q, want %q", got, want)
	}
}

func TestAwaitAll_WithoutTasksReturnsImmediately(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		values, err := durable.AwaitAll[int](ctx)
		return len(values), err
	})
	s.Start(nil)
	wantOutput(t, s, "0")
}

func race(ctx *durable.Context, _ durable.Void) (string, error) {
	word, number, deadline := durable.CallActivity(ctx, sayHello, "a"), durable.CallActivity(ctx, count, "b"), ctx.Timer(time.Hour)
	switch durable.AwaitAny(ctx, word, number, deadline) {
	case word:
		return word.Await()
	case number:
		n, err := number.Await()
		return fmt.Sprint("number ", n), err
	default:
		return "lapsed", nil
	}
}

func TestAwaitAny_ReturnsTheFirstCompletedTask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		events []history.Event
		want   string
	}{
		{"first argument", []history.Event{done(0, `"word"`)}, `"word"`},
		{"second argument", []history.Event{done(1, "5")}, `"number 5"`},
		{"timer", []history.Event{fired(2)}, `"lapsed"`},
		{"earlier of two events in one episode", []history.Event{done(1, "6"), done(0, `"word"`)}, `"number 6"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, race)
			s.Start(nil)
			s.Episode(c.events...)
			wantOutput(t, s, c.want)
		})
	}
}

func TestAwaitAny_ReturnsTheEarliestOfSeveralCompletedTasks(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		a, b := durable.CallActivity(ctx, count, "a"), durable.CallActivity(ctx, count, "b")
		if _, err := durable.CallActivity(ctx, count, "gate").Await(); err != nil {
			return "", err
		}
		if durable.AwaitAny(ctx, a, b) == durable.Awaitable(b) {
			return "b was first", nil
		}
		return "a was first", nil
	})
	s.Start(nil)
	s.Episode(done(1, "1"))
	s.Episode(done(0, "1"))
	s.Episode(done(2, "1"))
	wantOutput(t, s, `"b was first"`)
}

func TestAwaitAny_RejectsNoTasksAndNilTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		tasks []durable.Awaitable
		want  string
	}{
		{"none", nil, "AwaitAny was called without tasks"},
		{"nil", []durable.Awaitable{nil}, "AwaitAny was given a nil task"},
		{"nil of a type", []durable.Awaitable{(*durable.Task[int])(nil)}, "awaited a task that was not returned by a durable call"},
		{"zero", []durable.Awaitable{new(durable.Task[int])}, "awaited a task that was not returned by a durable call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
				durable.AwaitAny(ctx, c.tasks...)
				return "", nil
			})
			s.Start(nil)
			wantFailure(t, s, c.want)
		})
	}
}

func TestAwaitAll_RejectsNilTasks(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.AwaitAll(ctx, durable.CallActivity(ctx, reserve, purchase{}), nil)
		return "", err
	})
	s.Start(nil)
	wantFailure(t, s, "AwaitAll was given a nil task")
}

func TestAsCompleted_YieldsTasksAsTheyComplete(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		var tasks []*durable.Task[int]
		for range 4 {
			tasks = append(tasks, durable.CallActivity(ctx, count, ""))
		}
		if _, err := tasks[3].Await(); err != nil { // two tasks are complete before the loop starts
			return nil, err
		}
		var got []int
		for task := range durable.AsCompleted(ctx, tasks...) {
			n, err := task.Await()
			if err != nil {
				return nil, err
			}
			got = append(got, n)
			ctx.Sleep(0) // more tasks complete while the body waits
		}
		return got, nil
	})
	s.Start(nil)
	s.Episode(done(2, "2"), done(3, "3")) // timer 4
	s.Episode(done(1, "1"), done(0, "0"), fired(4))
	s.Episode(fired(5))
	s.Episode(fired(6))
	s.Episode(fired(7))
	wantOutput(t, s, "[2,3,1,0]")
}

func TestAsCompleted_CanBreakAndIterateAgain(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		var tasks []*durable.Task[int]
		for range 3 {
			tasks = append(tasks, durable.CallActivity(ctx, count, ""))
		}
		var got []int
		for range 2 {
			for task := range durable.AsCompleted(ctx, tasks...) {
				n, err := task.Await()
				if err != nil {
					return nil, err
				}
				if got = append(got, n); n == 1 {
					break
				}
			}
		}
		return got, nil
	})
	s.Start(nil)
	s.Episode(done(2, "2"))
	s.Episode(done(1, "1"))
	wantOutput(t, s, "[2,1,2,1]")
}

func TestGo_RunsBranchesInTurn(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]string, error) {
		var log []string // shared without a lock
		branch := func(name string) *durable.Task[durable.Void] {
			return durable.Go(ctx, func() (durable.Void, error) {
				log = append(log, name+" begins")
				for range 2 {
					if _, err := durable.CallActivity(ctx, count, name).Await(); err != nil {
						return durable.Void{}, err
					}
					log = append(log, name+" goes on")
				}
				return durable.Void{}, nil
			})
		}
		a, b := branch("a"), branch("b")
		log = append(log, "both made")
		_, err := durable.AwaitAll(ctx, a, b)
		return log, err
	})
	wantActions(t, s.Start(nil), `0 task Count ["a"]`, `1 task Count ["b"]`)
	wantActions(t, s.Episode(done(1, "1"), done(0, "1")), `2 task Count ["b"]`, `3 task Count ["a"]`)
	s.Episode(done(3, "1"), done(2, "1"))
	wantOutput(t, s, `["both made","a begins","b begins","b goes on","a goes on","a goes on","b goes on"]`)
}

func TestGo_EndsBranchesWhenTheOrchestratorReturns(t *testing.T) {
	t.Parallel()
	unwound := 0
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		durable.Go(ctx, func() (int, error) {
			defer func() { unwound++ }()
			_, err := durable.CallActivity(ctx, count, "waits for ever").Await()
			t.Error("the branch continued after the end")
			return 0, err
		})
		durable.Go(ctx, func() (int, error) {
			if _, err := durable.CallActivity(ctx, count, "b").Await(); err != nil {
				return 0, err
			}
			ctx.Sleep(time.Hour)
			return 0, nil
		})
		_, err := durable.CallActivity(ctx, count, "c").Await()
		durable.Go(ctx, func() (int, error) { t.Error("a branch started after the end"); return 0, nil })
		return "end", err
	})
	s.Compare = false
	s.Start(nil)
	wantActions(t, s.Episode(done(0, "1")), `3 Completed "end"`)
	if unwound != 1 {
		t.Errorf("%d branches were unwound, want 1", unwound)
	}
	wantActions(t, s.Episode(done(2, "1"))) // too late
}

func TestGo_ReturnsTheBranchsError(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		task := durable.Go(ctx, func() (int, error) { return 7, errDeclined })
		n, err := task.Await()
		if n != 7 || !errors.Is(err, errDeclined) {
			return 0, fmt.Errorf("got %d, %w", n, err)
		}
		return n, nil
	})
	s.Start(nil)
	wantOutput(t, s, "7")
}

var errDeclined = errors.New("card declined")

func TestGo_FailsTheInstanceWhenABranchPanics(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		durable.Go(ctx, func() (int, error) { panic("in a branch") })
		return durable.Event[int]("never").Wait(ctx).Await()
	})
	s.Start(nil)
	wantFailure(t, s, "panic: in a branch")
	if st := s.End().Failure.StackTrace; st == nil {
		t.Error("the failure has no stack")
	}
}
