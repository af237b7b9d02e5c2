package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// withPolicy returns an orchestrator that calls Count with a policy.
func withPolicy(policy durable.RetryPolicy) func(*durable.Context, durable.Void) (int, error) {
	return func(ctx *durable.Context, _ durable.Void) (int, error) {
		return durable.CallActivity(ctx, count, "a", policy).Await()
	}
}

func TestRetry_WaitsLongerAfterEachAttempt(t *testing.T) {
	t.Parallel()
	s := stage(t, withPolicy(durable.RetryPolicy{MaxAttempts: 5, FirstInterval: time.Second, Coefficient: 2, MaxInterval: 3 * time.Second}))
	wantActions(t, s.Start(nil), `0 task Count ["a"]`)
	wantActions(t, s.Episode(failed(0, "one")), "1 timer 1s")
	s.Now = s.Now.Add(time.Second)
	wantActions(t, s.Episode(fired(1)), `2 task Count ["a"]`)
	wantActions(t, s.Episode(failed(2, "two")), "3 timer 3s")
	s.Now = s.Now.Add(2 * time.Second)
	wantActions(t, s.Episode(fired(3)), `4 task Count ["a"]`)
	wantActions(t, s.Episode(failed(4, "three")), "5 timer 6s") // 4 s without MaxInterval
	s.Evict()
	wantActions(t, s.Episode(fired(5)), `6 task Count ["a"]`)
	wantActions(t, s.Episode(done(6, "1")), "7 Completed 1")
}

func TestRetry_CreatesNoTimerWithoutAFailure(t *testing.T) {
	t.Parallel()
	s := stage(t, withPolicy(durable.RetryPolicy{MaxAttempts: 5, FirstInterval: time.Second}))
	s.Start(nil)
	wantActions(t, s.Episode(done(0, "1")), "1 Completed 1")
}

// RetryInterceptor.cs: an early version waited after the last attempt. The timer still
// exists with a delay of 0.
func TestRetry_CreatesATimerOfZeroAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 2, 3, 10} {
		s := stage(t, withPolicy(durable.RetryPolicy{MaxAttempts: attempts, FirstInterval: time.Millisecond}))
		s.Start(nil)
		timers := 0
		for id := 0; s.End() == nil; id += 2 {
			due := time.Duration(timers+1) * time.Millisecond
			if timers == attempts-1 {
				due = time.Duration(timers) * time.Millisecond
			}
			wantActions(t, s.Episode(failed(id, "no")), fmt.Sprintf("%d timer %v", id+1, due))
			timers++
			if timers < attempts {
				s.Now = s.Now.Add(time.Millisecond)
			}
			s.Episode(fired(id + 1))
		}
		if timers != attempts {
			t.Errorf("%d attempts created %d timers, want the same number", attempts, timers)
		}
		wantFailure(t, s, fmt.Sprintf("Task 'Count' (#%d) failed with an unhandled exception: no", 2*(attempts-1)))
	}
}

func TestRetry_EndsWithoutATimerIfRetryingIsNotAllowed(t *testing.T) {
	t.Parallel()
	refuse := errors.New("refused")
	for _, c := range []struct {
		name    string
		policy  durable.RetryPolicy
		failure *history.TaskFailed
	}{
		{"the predicate returns false", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second, Handle: func(err error) bool {
			failure, ok := errors.AsType[*durable.TaskFailedError](err)
			return !ok || failure.Message != refuse.Error()
		}}, failed(0, refuse.Error())},
		{"the predicate returns false after the last attempt", durable.RetryPolicy{
			MaxAttempts: 1, FirstInterval: time.Second, Handle: func(error) bool { return false },
		}, failed(0, "no")},
		{"the error is not retryable", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second}, &history.TaskFailed{
			TaskScheduledID: 0, Reason: new("no"), Failure: &history.FailureDetails{ErrorType: "T", ErrorMessage: "no", IsNonRetriable: true},
		}},
		{"the timeout has passed", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second, RetryTimeout: time.Minute}, failed(0, "late")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, withPolicy(c.policy))
			s.Start(nil)
			s.Now = s.Now.Add(time.Minute)
			wantActions(t, s.Episode(c.failure), "1 Failed "+*c.failure.Reason)
		})
	}
}

func TestRetry_TimeoutCountsFromTheFirstAttempt(t *testing.T) {
	t.Parallel()
	s := stage(t, withPolicy(durable.RetryPolicy{MaxAttempts: 9, FirstInterval: 20 * time.Second, RetryTimeout: 30 * time.Second}))
	s.Start(nil)
	wantActions(t, s.Episode(failed(0, "no")), "1 timer 20s")
	s.Now = s.Now.Add(20 * time.Second)
	wantActions(t, s.Episode(fired(1)), `2 task Count ["a"]`)
	s.Now = s.Now.Add(9 * time.Second)
	wantActions(t, s.Episode(failed(2, "no")), "3 timer 49s")
	s.Now = s.Now.Add(20 * time.Second)
	s.Episode(fired(3))
	s.Episode(failed(4, "no"))
	wantFailure(t, s, "(#4)")
}

func TestRetry_RejectsAnInvalidPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy durable.RetryPolicy
		want   string
	}{
		{durable.RetryPolicy{}, "RetryPolicy.MaxAttempts is 0; want at least 1"},
		{durable.RetryPolicy{MaxAttempts: 2}, "RetryPolicy.FirstInterval is 0s; want more than 0"},
		{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: -1}, "RetryPolicy.FirstInterval is -1ns; want more than 0"},
		{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1, Coefficient: 0.5}, "RetryPolicy.Coefficient is 0.5; want at least 1"},
		{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1, Coefficient: math.NaN()}, "RetryPolicy.Coefficient is NaN; want at least 1"},
		{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1, Coefficient: math.Inf(1)}, "RetryPolicy.Coefficient is +Inf; want at least 1"},
		{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Minute, MaxInterval: time.Second}, "RetryPolicy.MaxInterval is 1s; want at least FirstInterval, 1m0s"},
		{durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1, RetryTimeout: -time.Second}, "RetryPolicy.RetryTimeout is -1s; want at least 0"},
	} {
		s := stage(t, withPolicy(c.policy))
		wantActions(t, s.Start(nil), "0 Failed durable: "+c.want)
	}
}

func TestRetry_NeverWaitsLongerThanMaxInterval(t *testing.T) {
	t.Parallel()
	s := stage(t, withPolicy(durable.RetryPolicy{MaxAttempts: 2000, FirstInterval: time.Hour, Coefficient: 1e300}))
	s.Start(nil)
	wantActions(t, s.Episode(failed(0, "no")), "1 timer 1h0m0s")
	s.Episode(fired(1))
	wantActions(t, s.Episode(failed(2, "no")), "3 timer 144h0m0s")
}

func TestRetry_KeepsSeveralTasksApart(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		policy := durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}
		a := durable.CallActivity(ctx, count, "a", policy)
		b := durable.CallActivity(ctx, count, "bb", policy)
		c := durable.CallActivity(ctx, count, "ccc")
		return durable.AwaitAll(ctx, a, b, c)
	})
	wantActions(t, s.Start(nil), `0 task Count ["a"]`, `1 task Count ["bb"]`, `2 task Count ["ccc"]`)
	wantActions(t, s.Episode(failed(1, "no"), done(2, "3"), failed(0, "no")), "3 timer 1s", "4 timer 1s")
	wantActions(t, s.Episode(fired(4), fired(3)), `5 task Count ["a"]`, `6 task Count ["bb"]`)
	s.Evict()
	s.Episode(done(6, "2"), done(5, "1"))
	wantOutput(t, s, "[1,2,3]")
}

func TestRetry_ContainsAPanicOfThePredicate(t *testing.T) {
	t.Parallel()
	s := stage(t, withPolicy(durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 1, Handle: func(error) bool { panic("no idea") }}))
	s.Start(nil)
	s.Episode(failed(0, "no"))
	wantFailure(t, s, "panic: no idea")
}

func TestRetry_ContinuesAfterAnAwaitTimeout(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		task := durable.CallActivity(ctx, count, "a", durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Hour})
		if _, err := task.AwaitTimeout(time.Minute); !errors.Is(err, durable.ErrTimeout) {
			return 0, fmt.Errorf("not a timeout: %w", err)
		}
		return task.Await()
	})
	wantActions(t, s.Start(nil), `0 task Count ["a"]`, "1 timer 1m0s")
	wantActions(t, s.Episode(failed(0, "no")), "2 timer 1h0m0s")
	wantActions(t, s.Episode(fired(1)))
	wantActions(t, s.Episode(fired(2)), `3 task Count ["a"]`)
	s.Episode(done(3, "1"))
	wantOutput(t, s, "1")
}

func TestNonRetryable_MarksTheRecordedFailure(t *testing.T) {
	t.Parallel()
	if durable.NonRetryable(nil) != nil {
		t.Error("NonRetryable(nil) is not nil")
	}
	limit := &limitError{3}
	for _, err := range []error{
		durable.NonRetryable(limit),
		durable.NonRetryable(fmt.Errorf("charge: %w", limit)),
		fmt.Errorf("charge: %w", durable.NonRetryable(limit)),
		errors.Join(errDeclined, durable.NonRetryable(limit)),
	} {
		if !errors.Is(err, limit) {
			t.Errorf("%v does not wrap the marked error", err)
		}
		s := stage(t, func(*durable.Context, durable.Void) (int, error) { return 0, err })
		s.Start(nil)
		f := s.End().Failure
		if !f.IsNonRetriable || f.ErrorType != "*durable_test.limitError" || f.ErrorMessage != err.Error() {
			t.Errorf("%v is recorded as %+v", err, f)
		}
	}
}

func TestRetry_TakesTheTimeOfItsDelaysOnAHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		flaky := func(context.Context, string) (string, error) {
			if attempts++; attempts < 4 {
				return "", errors.New("not yet")
			}
			return "done", nil
		}
		hopeless := func(context.Context, string) (string, error) {
			return "", durable.NonRetryable(errors.New("never"))
		}
		policy := durable.RetryPolicy{MaxAttempts: 10, FirstInterval: 5 * time.Second, Coefficient: 2}
		main := func(ctx *durable.Context, _ durable.Void) (string, error) {
			if _, err := durable.CallActivity(ctx, hopeless, "x", policy).Await(); err == nil || !strings.Contains(err.Error(), "never") {
				return "", fmt.Errorf("hopeless: %w", err)
			}
			began := ctx.Now()
			out, err := durable.CallActivity(ctx, flaky, "x", policy).Await()
			return fmt.Sprint(out, " after ", ctx.Now().Sub(began).Round(time.Second)), err
		}
		r := durable.NewRegistry(durable.Orchestrator("Main", main), durable.Activity("Flaky", flaky), durable.Activity("Hopeless", hopeless))
		h := memhub.New()
		defer run(t, h, r, durable.Config{})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), main, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "done after 35s" {
			t.Errorf("output %q, %v; want done after 5 + 10 + 20 s", out, err)
		}
	})
}
