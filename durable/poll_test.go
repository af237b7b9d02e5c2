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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

func TestPoll_ReturnsTheResultOfTheLastCall(t *testing.T) {
	var calls []string
	got, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		began := ctx.Now()
		r, err := durable.Poll(ctx, "room", durable.PollPolicy{Interval: time.Minute, Coefficient: 2, MaxInterval: 3 * time.Minute},
			func(ctx context.Context, n int) (reservation, bool, error) {
				info, _ := durable.ActivityInfoFrom(ctx)
				calls = append(calls, fmt.Sprint(n, info.Name, info.Attempt, time.Since(began)))
				return reservation{n, "lost"}, n == 4, nil
			}).Await()
		return fmt.Sprintf("%d %q %v", r.Room, r.note, ctx.Now().Sub(began).Round(time.Second)), err
	})
	if err != nil || got != `4 "" 6m0s` || fmt.Sprint(calls) != "[1room1 0s 2room1 1m0s 3room1 3m0s 4room1 6m0s]" {
		t.Errorf("%s, %v, calls %v", got, err, calls)
	}
}

func TestPoll_HasADeadline(t *testing.T) {
	last := 0
	got, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		poll := durable.Poll(ctx, "never", durable.PollPolicy{Interval: time.Minute}, func(_ context.Context, n int) (int, bool, error) {
			last = n
			return 0, false, nil
		})
		if _, err := poll.AwaitTimeout(time.Hour + time.Second); !errors.Is(err, durable.ErrTimeout) {
			return 0, fmt.Errorf("not a timeout: %w", err)
		}
		return last, nil
	})
	if err != nil || got != 61 {
		t.Errorf("%d, %v", got, err)
	}
}

func TestPoll_Options(t *testing.T) {
	for name, test := range map[string]struct {
		opts  []durable.StepOption
		calls string // numbers
		takes time.Duration
	}{
		"an error ends it":           {nil, "[1 2]", time.Minute},
		"a policy starts it again":   {[]durable.StepOption{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Hour}}, "[1 2 1 2]", time.Hour + 2*time.Minute},
		"tries repeat a single call": {[]durable.StepOption{durable.Tries(2, time.Second)}, "[1 2 2]", time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []int
			began, ended := time.Time{}, time.Time{}
			_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				if began.IsZero() {
					began = ctx.Now()
				}
				_, err := durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Minute}, func(_ context.Context, n int) (int, bool, error) {
					calls = append(calls, n)
					ended = time.Now()
					if n == 2 {
						return 0, false, errors.New("no")
					}
					return 0, false, nil
				}, test.opts...).Await()
				return 0, err
			})
			if err == nil || fmt.Sprint(calls) != test.calls || ended.Sub(began).Round(time.Second) != test.takes {
				t.Errorf("%v, calls %v in %v, want %s in %v", err, calls, ended.Sub(began), test.calls, test.takes)
			}
		})
	}
}

func TestPoll_RejectsInvalidArguments(t *testing.T) {
	policy := durable.PollPolicy{Interval: time.Second}
	f := func(context.Context, int) (int, bool, error) { return 0, true, nil }
	for want, call := range map[string]func(*durable.Context) *durable.Task[int]{
		"durable: Poll was called without a name": func(ctx *durable.Context) *durable.Task[int] { return durable.Poll(ctx, " ", policy, f) },
		"durable: poll P has no function":         func(ctx *durable.Context) *durable.Task[int] { return durable.Poll[int](ctx, "P", policy, nil) },
		"durable: poll P cannot run at most once": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Poll(ctx, "P", policy, f, durable.AtMostOnce)
		},
		"durable: PollPolicy.Interval is 0s; want at least 1ms": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Poll(ctx, "P", durable.PollPolicy{}, f)
		},
		"durable: PollPolicy.Coefficient is 0.5; want at least 1": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Second, Coefficient: 0.5}, f)
		},
		"durable: PollPolicy.MaxInterval is 1ms; want at least Interval, 1s": func(ctx *durable.Context) *durable.Task[int] {
			return durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Second, MaxInterval: time.Millisecond}, f)
		},
	} {
		_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
			_, err := call(ctx).Await()
			if err == nil || err.Error() != want {
				return 0, fmt.Errorf("error %w, want %s", err, want)
			}
			return 0, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestPoll_IsRefusedInsideAStep(t *testing.T) {
	_, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		return durable.Step(ctx, "S", func(context.Context) (int, error) {
			return durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Second}, func(context.Context, int) (int, bool, error) { return 0, true, nil }).Await()
		}).Await()
	})
	if err == nil || !strings.Contains(err.Error(), "durable: Poll was called inside a step") {
		t.Errorf("%v", err)
	}
}

func TestPoll_IsAReasonWithItsNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := func(ctx *durable.Context, _ durable.Void) (int, error) {
			return durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Hour}, func(_ context.Context, n int) (int, bool, error) { return n, n == 3, nil }).Await()
		}
		r := durable.NewRegistry(durable.Orchestrator("Main", main))
		h := memhub.New()
		defer run(t, h, r, durable.Config{})()
		began, client := time.Now(), durable.NewClient(h, r)
		i, err := durable.Start(t.Context(), client, main, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Minute)
		d, err := client.Why(t.Context(), i.ID)
		if err != nil || len(d.Reasons) != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		reason := d.Reasons[0]
		if got := fmt.Sprint(reason, " in ", reason.Due.Sub(began)); got != `poll "P", call 2 in 2h0m0s` || reason.Kind != durable.ReasonStep {
			t.Errorf("%s, %s", reason.Kind, got)
		}
		reason.RunsHere = new(false)
		if got := reason.String(); got != `poll "P", call 2, waiting for its next call or running on another worker` {
			t.Error(got)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != 3 {
			t.Errorf("%d, %v", out, err)
		}
	})
}
