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
