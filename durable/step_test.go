package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// runStep runs an orchestrator on a hub in a bubble and returns its output.
func runStep[O any](t *testing.T, main func(*durable.Context, durable.Void) (O, error), fns ...*durable.Registration) (out O, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := durable.NewRegistry(append(fns, durable.Orchestrator("Main", main))...)
		h := memhub.New()
		defer run(t, h, r, durable.Config{})()
		var i *durable.Instance[O]
		if i, err = durable.Start(t.Context(), durable.NewClient(h, r), main, durable.Void{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour) // of virtual time
		defer cancel()
		out, err = i.Wait(ctx)
		time.Sleep(time.Hour) // the hub discards the wake-up of a poll when it is due
		if n := h.Pending(); n > 0 {
			t.Errorf("%d messages are left", n)
		}
	})
	return out, err
}

type reservation struct {
	Room int
	note string // not in the JSON
}

func TestStep_ReturnsTheRecordedResult(t *testing.T) {
	got, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		r, err := durable.Step(ctx, "reserve", func(context.Context) (reservation, error) { return reservation{7, "lost"}, nil }).Await()
		if err != nil {
			return "", err
		}
		_, err = durable.Step(ctx, "nothing", func(context.Context) (durable.Void, error) { return durable.Void{}, nil }).Await()
		return fmt.Sprintf("%d %q", r.Room, r.note), err
	})
	if err != nil || got != `7 ""` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestStep_WorksWithAllWaysToWait(t *testing.T) {
	got, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		after := func(d time.Duration) *durable.Task[string] {
			return durable.Step(ctx, d.String(), func(ctx context.Context) (string, error) {
				time.Sleep(d)
				return d.String(), ctx.Err()
			})
		}
		slow := after(time.Hour)
		if _, err := slow.AwaitTimeout(time.Second); !errors.Is(err, durable.ErrTimeout) {
			return "", fmt.Errorf("not a timeout: %w", err)
		}
		second, first := after(3*time.Second), after(2*time.Second)
		isFirst := durable.AwaitAny(ctx, second, first) == durable.Awaitable(first)
		all, err := durable.AwaitAll(ctx, after(time.Second), slow, after(time.Minute))
		if err != nil {
			return "", err
		}
		branch, err := durable.Go(ctx, func() (string, error) { return after(time.Second).Await() }).Await()
		return fmt.Sprint(isFirst, " ", strings.Join(all, " "), " ", branch), err
	})
	if err != nil || got != "true 1s 1h0m0s 1m0s 1s" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestStep_HasTheContextOfAnActivity(t *testing.T) {
	var infos []string
	_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		ctx.Sleep(time.Second)
		policy := durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}
		return durable.Step(ctx, "S", func(ctx context.Context) (int, error) {
			info, ok := durable.ActivityInfoFrom(ctx)
			key := strings.TrimPrefix(info.IdempotencyKey, info.IdempotencyKey[:32])
			infos = append(infos, fmt.Sprintln(ok, info.Name, info.TaskID, info.Attempt, key))
			return 0, errors.New("no")
		}, policy, durable.Tries(2, time.Second)).Await()
	})
	want := "[true S 1 1 -1\n true S 1 2 -1\n true S 1 3 -1\n true S 1 4 -1\n]"
	if got := fmt.Sprint(infos); got != want || err == nil {
		t.Errorf("%s, want %s; %v", got, want, err)
	}
}

func TestStep_Options(t *testing.T) {
	policy := durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Minute}
	for name, test := range map[string]struct {
		opts  []durable.StepOption
		err   error
		runs  int
		takes time.Duration
	}{
		"none":                        {nil, errors.New("no"), 1, 0},
		"policy":                      {[]durable.StepOption{policy}, errors.New("no"), 3, 2 * time.Minute},
		"tries":                       {[]durable.StepOption{durable.Tries(3, time.Second)}, errors.New("no"), 3, 2 * time.Second},
		"both":                        {[]durable.StepOption{durable.Tries(2, time.Second), policy}, errors.New("no"), 6, 2*time.Minute + 3*time.Second},
		"a permanent error":           {[]durable.StepOption{durable.Tries(3, time.Second), policy}, durable.NonRetryable(errors.New("no")), 1, 0},
		"an error that wraps itself":  {[]durable.StepOption{durable.Tries(3, time.Second)}, &cyclicError{}, 3, 2 * time.Second},
		"a timeout for each attempt":  {[]durable.StepOption{durable.Tries(2, time.Second), durable.AttemptTimeout(time.Second)}, nil, 2, 3 * time.Second},
		"at most once with a failure": {[]durable.StepOption{durable.AtMostOnce}, errors.New("no"), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			var began, ended time.Time
			_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				began = ctx.Now()
				_, err := durable.Step(ctx, "S", func(ctx context.Context) (int, error) {
					runs++
					if test.err == nil {
						<-ctx.Done()
						return 0, context.Cause(ctx)
					}
					return 0, test.err
				}, test.opts...).Await()
				ended = ctx.Now()
				return 0, err
			})
			if runs != test.runs || ended.Sub(began).Round(100*time.Millisecond) != test.takes || err == nil {
				t.Errorf("%d runs in %v, want %d in %v; error %v", runs, ended.Sub(began), test.runs, test.takes, err)
			}
			if test.err == nil && !errors.Is(err, durable.ErrTimeout) {
				t.Errorf("the error %v is not ErrTimeout", err)
			}
		})
	}
}

func TestStep_RejectsInvalidArguments(t *testing.T) {
	f := func(context.Context) (int, error) { return 0, nil }
	for want, step := range map[string]func(*durable.Context) *durable.Task[int]{
		"without a name":  func(ctx *durable.Context) *durable.Task[int] { return durable.Step(ctx, " ", f) },
		"has no function": func(ctx *durable.Context) *durable.Task[int] { return durable.Step[int](ctx, "S", nil) },
		"Tries(0, 1s)": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Step(ctx, "S", f, durable.Tries(0, time.Second))
		},
		"Tries(-1, 0s)": func(ctx *durable.Context) *durable.Task[int] { return durable.Step(ctx, "S", f, durable.Tries(-1, 0)) },
		"more than 10s": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Step(ctx, "S", f, durable.Tries(12, time.Second))
		},
		"AttemptTimeout(-1s)": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Step(ctx, "S", f, durable.AttemptTimeout(-time.Second))
		},
		"MaxAttempts is 0": func(ctx *durable.Context) *durable.Task[int] { return durable.Step(ctx, "S", f, durable.RetryPolicy{}) },
	} {
		_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) { return step(ctx).Await() })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// A durable call inside a step would change the orchestration from another goroutine.
func TestStep_RejectsDurableCalls(t *testing.T) {
	for name, call := range map[string]func(*durable.Context) error{
		"an activity": func(ctx *durable.Context) error {
			_, err := durable.CallActivity(ctx, count, "a").Await()
			return err
		},
		"a step": func(ctx *durable.Context) error {
			_, err := durable.Step(ctx, "inner", func(context.Context) (int, error) { return 0, nil }).Await()
			return err
		},
		"a timer": func(ctx *durable.Context) error { ctx.Sleep(time.Second); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				return durable.Step(ctx, "outer", func(context.Context) (int, error) { return 0, call(ctx) }).Await()
			}, durable.Activity("Count", count))
			if usage, ok := errors.AsType[*durable.UsageError](err); !ok || !strings.Contains(usage.Message, "inside a step") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestStep_ReplaysInPlaceOfAnActivity(t *testing.T) {
	t.Parallel()
	activity := func(ctx *durable.Context, _ durable.Void) (int, error) {
		a, err := durable.CallActivity(ctx, count, "a").Await()
		if err != nil {
			return 0, err
		}
		b, err := durable.CallActivity(ctx, count, "bb").Await()
		return a + b, err
	}
	s := stage(t, activity)
	s.Start(nil)
	s.Episode(done(0, "1"))
	past := s.History

	step := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		f := func(context.Context) (int, error) { return 0, nil }
		a, err := durable.Step(ctx, "Count", f).Await()
		if err != nil {
			return 0, err
		}
		b, err := durable.Step(ctx, "Count", f).Await()
		return a + b, err
	})
	step.History = past
	step.Episode(done(1, "2"))
	if end := step.End(); end == nil || end.Status != history.Completed || *end.Result != "3" {
		t.Errorf("the end is %+v", end)
	}
}
