package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
)

func TestStep_RunsForRealOrIsStubbed(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		began := ctx.Now()
		a, err := durable.Step(ctx, "real", func(ctx context.Context) (string, error) {
			durabletest.Spend(ctx, time.Hour)
			return "real", nil
		}).Await()
		if err != nil {
			return "", err
		}
		b, err := durable.Step(ctx, "stubbed", func(context.Context) (string, error) { return "", errors.New("not stubbed") }).Await()
		return fmt.Sprint(a, " ", b, " ", ctx.Now().Sub(began)), err
	}
	h := durabletest.New(t, durable.Orchestrator("Main", main))
	durabletest.StubStep(h, "stubbed", func(context.Context) (string, error) { return "stub", nil })
	out, err := durabletest.Run(h, main, durable.Void{})
	if err != nil || out != "real stub 1h0m0s" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestStep_RepeatsAttemptsInVirtualTime(t *testing.T) {
	runs := 0
	main := func(ctx *durable.Context, _ durable.Void) (time.Duration, error) {
		began := ctx.Now()
		_, err := durable.Step(ctx, "flaky", func(context.Context) (int, error) {
			if runs++; runs < 4 {
				return 0, errors.New("no")
			}
			return runs, nil
		}, durable.Tries(2, 3*time.Second), durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Minute}, durable.AtMostOnce).Await()
		return ctx.Now().Sub(began), err
	}
	out, err := durabletest.Run(durabletest.New(t, durable.Orchestrator("Main", main)), main, durable.Void{})
	if err != nil || out != time.Minute+6*time.Second || runs != 4 {
		t.Errorf("%v, %v, %d runs", out, err, runs)
	}
}

// A decision between the start of a step and its record must be the same after a crash.
func TestStep_IsRepeatedByAReplayBeforeItsRecord(t *testing.T) {
	changes := 0
	main := func(ctx *durable.Context, _ durable.Void) (int, error) {
		changes++
		return durable.Step(ctx, fmt.Sprint("step ", changes), func(context.Context) (int, error) { return 1, nil }).Await()
	}
	failure := fails(t, func(t durabletest.TB) {
		_, _ = durabletest.Run(durabletest.New(t, durable.Orchestrator("Main", main)), main, durable.Void{})
	})
	if !strings.Contains(failure, "does not repeat step") {
		t.Errorf("the test fails with %q", failure)
	}
}

func TestPoll_TakesVirtualTime(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		began := ctx.Now()
		policy := durable.PollPolicy{Interval: time.Hour}
		n, err := durable.Poll(ctx, "real", policy, func(ctx context.Context, n int) (int, bool, error) {
			durabletest.Spend(ctx, 90*time.Minute)
			return n, n >= 5, nil
		}).Await()
		if err != nil {
			return "", err
		}
		stub, err := durable.Poll(ctx, "stubbed", policy, func(context.Context, int) (string, bool, error) { return "", false, nil }).Await()
		return fmt.Sprint(n, " ", stub, " ", ctx.Now().Sub(began)), err
	}
	h := durabletest.New(t, durable.Orchestrator("Main", main))
	durabletest.StubStep(h, "stubbed", func(context.Context) (string, error) { return "stub", nil })
	out, err := durabletest.Run(h, main, durable.Void{})
	if err != nil || out != "5 stub 5h30m0s" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestPoll_OfAnEndedInstanceStops(t *testing.T) {
	last := 0
	main := func(ctx *durable.Context, _ durable.Void) (int, error) {
		poll := durable.Poll(ctx, "never", durable.PollPolicy{Interval: time.Hour}, func(_ context.Context, n int) (int, bool, error) {
			last = n
			return 0, false, nil
		})
		_, err := poll.AwaitTimeout(150 * time.Minute)
		return last, err
	}
	h := durabletest.New(t, durable.Orchestrator("Main", main))
	if _, err := durabletest.Run(h, main, durable.Void{}); !strings.Contains(fmt.Sprint(err), durable.ErrTimeout.Error()) {
		t.Errorf("%v", err)
	}
	if h.Advance(time.Hour); last != 3 {
		t.Errorf("%d calls", last)
	}
}

func TestPoll_OfASuspendedInstanceWaits(t *testing.T) {
	t.Parallel()
	var calls []int
	main := func(ctx *durable.Context, _ durable.Void) (int, error) {
		return durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Hour}, func(_ context.Context, n int) (int, bool, error) {
			calls = append(calls, n)
			return n, n >= 7, nil
		}).Await()
	}
	h := durabletest.New(t, durable.Orchestrator("Main", main))
	i := durabletest.Start(h, main, durable.Void{})
	h.Advance(90 * time.Minute)
	i.Suspend("audit")
	h.Advance(3 * time.Hour)
	i.Resume("audit")
	if n, err := i.Wait(); err != nil || n != 7 || fmt.Sprint(calls) != "[1 2 5 6 7]" {
		t.Errorf("%d, %v, calls %v", n, err, calls)
	}
}

func TestPoll_ThatIsNeverDoneExceedsMaxEpisodes(t *testing.T) {
	t.Parallel()
	main := func(ctx *durable.Context, _ durable.Void) (int, error) {
		return durable.Poll(ctx, "P", durable.PollPolicy{Interval: time.Hour}, func(context.Context, int) (int, bool, error) { return 0, false, nil }).Await()
	}
	got := fails(t, func(t durabletest.TB) {
		h := durabletest.New(t, durable.Orchestrator("Main", main))
		h.MaxEpisodes = 100
		_, _ = durabletest.Run(h, main, durable.Void{})
	})
	contains(t, got, "run 100 episodes", "Hub.MaxEpisodes")
}
