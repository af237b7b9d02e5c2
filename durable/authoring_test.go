package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

func sayHello(_ context.Context, city string) (string, error) { return "Hello " + city + "!", nil }
func count(_ context.Context, s string) (int, error)          { return len(s), nil }
func touch(context.Context, durable.Void) (durable.Void, error) {
	return durable.Void{}, nil
}

// authors returns a registry with the activities above and more.
func authors(more ...*durable.Registration) *durable.Registry {
	r := durable.NewRegistry(
		durable.Activity("SayHello", sayHello),
		durable.Activity("Count", count),
		durable.Activity("Touch", touch),
	)
	r.Add(more...)
	return r
}

// stage returns a stage for the orchestrator orch, registered as "Main".
func stage[I, O any](t testing.TB, orch func(*durable.Context, I) (O, error)) *replaytest.Stage {
	t.Helper()
	return stageOf(t, authors(durable.Orchestrator("Main", orch)))
}

func stageOf(t testing.TB, r *durable.Registry) *replaytest.Stage {
	t.Helper()
	code, ok := durable.EngineOf(r).Orchestrator("Main", "")
	if !ok {
		t.Fatal("the registry has no orchestrator Main")
	}
	return replaytest.New(t, "Main", code)
}

// wantActions compares actions with their descriptions, one per line.
func wantActions(t *testing.T, got []replay.Action, want ...string) {
	t.Helper()
	w := strings.Join(want, "\n")
	if w != "" {
		w += "\n"
	}
	if diff := cmp.Diff(replaytest.Describe(got), w); diff != "" {
		t.Errorf("actions (-got +want):\n%s", diff)
	}
}

func wantOutput(t *testing.T, s *replaytest.Stage, want string) {
	t.Helper()
	if got := s.Output(history.Completed); got != want {
		t.Errorf("output %s, want %s", got, want)
	}
}

func wantFailure(t *testing.T, s *replaytest.Stage, want string) {
	t.Helper()
	s.Output(history.Failed) // fails the test for another status
	if got := s.End().Failure.ErrorMessage; !strings.Contains(got, want) {
		t.Errorf("failed with %q, want it to contain %q", got, want)
	}
}

var (
	done   = replaytest.Done
	failed = replaytest.Failed
	fired  = replaytest.Fired
	raised = replaytest.Raised
)

func helloSequence(ctx *durable.Context, _ durable.Void) ([]string, error) {
	var out []string
	for _, city := range []string{"Tokyo", "Seattle", "London"} {
		s, err := durable.CallActivity(ctx, sayHello, city).Await()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func TestCallActivity_SchedulesActivitiesInSequence(t *testing.T) {
	t.Parallel()
	s := stage(t, helloSequence)
	wantActions(t, s.Start(nil), `0 task SayHello ["Tokyo"]`)
	wantActions(t, s.Episode(done(0, `"Hello Tokyo!"`)), `1 task SayHello ["Seattle"]`)
	wantActions(t, s.Episode(done(1, `"Hello Seattle!"`)), `2 task SayHello ["London"]`)
	wantActions(t, s.Episode(done(2, `"Hello London!"`)), `3 Completed ["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
}

func TestCallActivity_NumbersActionsOfAllKindsInProgramOrder(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		ctx.Timer(time.Minute)
		durable.CallActivity(ctx, count, "a")
		durable.Event[int]("E").Wait(ctx) // no action
		ctx.Timer(time.Hour)
		durable.CallActivity(ctx, touch, durable.Void{})
		return "end", nil
	})
	wantActions(t, s.Start(nil), "0 timer 1m0s", `1 task Count ["a"]`, "2 timer 1h0m0s", "3 task Touch [null]", `4 Completed "end"`)
}

func TestCallActivity_SchedulesNothingForAFunctionThatIsNotRegistered(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		return durable.CallActivity(ctx, unregistered, "x").Await()
	})
	wantActions(t, s.Start(nil),
		"0 Failed durable: activity github.com/durablefunctions-go/durablefunctions/durable_test.unregistered is not registered; add it to the registry with a name")
}

func unregistered(context.Context, string) (string, error) { return "", nil }

func TestCallActivity_FailsTheTaskWhenTheInputCannotBeEncoded(t *testing.T) {
	t.Parallel()
	bad := func(context.Context, chan int) (string, error) { return "", nil }
	s := stageOf(t, authors(
		durable.Activity("Bad", bad),
		durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.CallActivity(ctx, bad, make(chan int)).Await()
		})))
	wantActions(t, s.Start(nil), "0 Failed encode input of activity Bad: json: unsupported type: chan int")
}

func TestActivityName_CallsAnActivityOfAnotherProgram(t *testing.T) {
	t.Parallel()
	const ship = durable.ActivityName[map[string]int, bool]("Ship")
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (bool, error) {
		return ship.Call(ctx, map[string]int{"n": 1}).Await()
	})
	wantActions(t, s.Start(nil), `0 task Ship [{"n":1}]`)
	s.Episode(done(0, "true"))
	wantOutput(t, s, "true")
}

func TestTask_AwaitReturnsADecodeErrorThatNamesFunctionAndType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, result, want string }{
		{"another type", `"seven"`, "decode result of activity Count: as int: json: cannot unmarshal string into Go value of type int"},
		{"no JSON", `{`, "decode result of activity Count: as int: unexpected end of JSON input"},
		{"too large", `1e99`, "decode result of activity Count: as int: json: cannot unmarshal number 1e99 into Go value of type int"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				task := durable.CallActivity(ctx, count, "a")
				_, err := task.Await()
				if _, again := task.Await(); !errors.Is(again, err) {
					return 0, fmt.Errorf("the second Await returned another error: %w", again)
				}
				return 0, err
			})
			s.Start(nil)
			s.Episode(done(0, c.result))
			if got := s.Output(history.Failed); got != c.want {
				t.Errorf("failed with %q, want %q", got, c.want)
			}
		})
	}
}

type badJSON struct{}

func (*badJSON) UnmarshalJSON([]byte) error { panic("unmarshal panics") }

func TestTask_ContainsAPanicOfUnmarshalJSON(t *testing.T) {
	t.Parallel()
	const call = durable.ActivityName[int, badJSON]("X")
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		_, err := call.Call(ctx, 1).Await()
		return 0, err
	})
	s.Start(nil)
	s.Episode(done(0, "1"))
	wantFailure(t, s, "panic: unmarshal panics")
}

func TestTask_CanBeAwaitedAgainAndBySeveralBranches(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		task := durable.CallActivity(ctx, count, "abc")
		var branches []*durable.Task[int]
		for range 3 {
			branches = append(branches, durable.Go(ctx, task.Await))
		}
		n, err := task.Await()
		if err != nil {
			return nil, err
		}
		all, err := durable.AwaitAll(ctx, branches...)
		return append(all, n), err
	})
	s.Start(nil)
	s.Episode(done(0, "3"))
	wantOutput(t, s, "[3,3,3,3]")
}

func TestTask_AwaitReturnsTheActivitysFailure(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallActivity(ctx, count, "a").Await()
		var failure *durable.TaskFailedError
		if !errors.As(err, &failure) {
			return "", fmt.Errorf("not a TaskFailedError: %w", err)
		}
		if failure.Name != "Count" || failure.TaskID != 0 || failure.Type != "App.Declined" || failure.Message != "no funds" ||
			failure.StackTrace != "at x" || !failure.NonRetryable || failure.Inner == nil || failure.Inner.ErrorType != "Bank" || failure.Details != "" {
			t.Errorf("fields %+v", failure)
		}
		return "", fmt.Errorf("charge card: %w", err)
	})
	s.Start(nil)
	s.Episode(&history.TaskFailed{TaskScheduledID: 0, Reason: new("no funds"), Failure: &history.FailureDetails{
		ErrorType: "App.Declined", ErrorMessage: "no funds", StackTrace: new("at x"), IsNonRetriable: true,
		InnerFailure: &history.FailureDetails{ErrorType: "Bank", ErrorMessage: "b"},
	}})
	end := s.End()
	want := &replay.Complete{
		ID: 1, Status: history.Failed, Result: new("charge card: Task 'Count' (#0) failed with an unhandled exception: no funds"),
		Failure: &history.FailureDetails{
			ErrorType:    "*durable.TaskFailedError",
			ErrorMessage: "charge card: Task 'Count' (#0) failed with an unhandled exception: no funds",
			InnerFailure: &history.FailureDetails{
				ErrorType: "App.Declined", ErrorMessage: "no funds", StackTrace: new("at x"), IsNonRetriable: true,
				InnerFailure: &history.FailureDetails{ErrorType: "Bank", ErrorMessage: "b"},
			},
		},
	}
	if diff := cmp.Diff(end, want); diff != "" {
		t.Errorf("end (-got +want):\n%s", diff)
	}
}

func TestTask_AwaitAcceptsAFailureOfAWorkerThatSerializesExceptions(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		_, err := durable.CallActivity(ctx, count, "a").Await()
		failure, ok := errors.AsType[*durable.TaskFailedError](err)
		if !ok || failure.Message != "kaboom" || failure.Details != "{}" || failure.Type != "" || failure.Inner != nil {
			t.Errorf("got %+v", failure)
		}
		return err.Error(), nil
	})
	s.Start(nil)
	s.Episode(&history.TaskFailed{TaskScheduledID: 0, Reason: new("kaboom"), Details: new("{}")})
	wantOutput(t, s, `"Task 'Count' (#0) failed with an unhandled exception: kaboom"`)
}

func TestTask_IgnoresCompletionsOfTasksThatAreNotOpen(t *testing.T) {
	t.Parallel()
	s := stage(t, helloSequence)
	s.Start(nil)
	wantActions(t, s.Episode(done(7, `"no such task"`), done(-1, ""), fired(0), done(0, `"first"`), done(0, `"twice"`), failed(0, "thrice")),
		`1 task SayHello ["Seattle"]`)
	wantActions(t, s.Episode(done(0, `"again"`), &history.GenericEvent{Header: history.NewHeader(s.Now)}))
	s.Episode(done(1, `"second"`), done(2, `"third"`)) // decision 2 comes from an episode whose commit had no clear result
	wantOutput(t, s, `["first","second","third"]`)
}

func TestContext_ReturnsItsInstanceAndTime(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, in json.RawMessage) (string, error) {
		return fmt.Sprint(ctx.InstanceID(), " ", ctx.Now().Format(time.RFC3339Nano), " ", string(in)), nil
	})
	s.Start(map[string]int{"a": 1})
	wantOutput(t, s, `"abc 2024-10-01T12:00:00.1234567Z {\"a\":1}"`)
}
