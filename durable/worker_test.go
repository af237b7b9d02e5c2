package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// sessionIdle returns the ExtendedSessionIdle of a worker with or without extended
// sessions.
func sessionIdle(extended bool) time.Duration {
	if extended {
		return durable.DefaultExtendedSessionIdle
	}
	return -1
}

// run runs a worker until stop is called.
func run(t testing.TB, p provider.Worker, r *durable.Registry, cfg durable.Config) (stop func()) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- durable.NewWorker(p, r, cfg).Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

type purchase struct {
	ID    string
	Items []string
}

func reserve(_ context.Context, o purchase) (string, error) {
	if o.ID == "bad" {
		return "", errors.New("out of stock")
	}
	return "r-" + o.ID, nil
}

const approval = durable.Event[string]("Approval")

func placeOrder(ctx *durable.Context, o purchase) (string, error) {
	r, err := durable.CallActivity(ctx, reserve, o).Await()
	if err != nil {
		return "", fmt.Errorf("reserve stock: %w", err)
	}
	by, err := approval.Wait(ctx).AwaitTimeout(72 * time.Hour)
	switch {
	case errors.Is(err, durable.ErrTimeout):
		return r + " lapsed", nil
	case err != nil:
		return "", err
	}
	return r + " approved by " + by, nil
}

func orders() *durable.Registry {
	return durable.NewRegistry(durable.Orchestrator("PlaceOrder", placeOrder), durable.Activity("Reserve", reserve))
}

func TestWorker_RunsStartedInstances(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := memhub.New()
			r := orders()
			defer run(t, h, r, durable.Config{ExtendedSessionIdle: sessionIdle(sessions)})()
			c := durable.NewClient(h, r)
			approved, err := durable.Start(t.Context(), c, placeOrder, purchase{ID: "1"})
			if err != nil {
				t.Fatal(err)
			}
			lapsed, err := durable.Start(t.Context(), c, placeOrder, purchase{ID: "2"}, durable.InstanceID("order-2"))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
			if err := approval.Raise(t.Context(), c, approved.ID, "Ada"); err != nil {
				t.Error(err)
			}
			if out, err := approved.Wait(t.Context()); err != nil || out != "r-1 approved by Ada" {
				t.Errorf("output is %q, %v", out, err)
			}
			if out, err := lapsed.Wait(t.Context()); err != nil || out != "r-2 lapsed" {
				t.Errorf("output is %q, %v", out, err)
			}
			if lapsed.ID != "order-2" {
				t.Errorf("ID is %q", lapsed.ID)
			}
		})
	}
}

func TestWait_ReturnsTheFailureOfAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := orders()
		defer run(t, h, r, durable.Config{})()
		c := durable.NewClient(h, r)

		bad, err := durable.Start(t.Context(), c, placeOrder, purchase{ID: "bad"}, durable.InstanceID("bad"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = bad.Wait(t.Context())
		failed, ok := errors.AsType[*durable.OrchestrationFailedError](err)
		if !ok || failed.Status != history.Failed || failed.InstanceID != "bad" {
			t.Fatalf("error is %v, want an OrchestrationFailedError with status Failed", err)
		}
		for _, want := range []string{"orchestration bad failed: ", "reserve stock: Task 'Reserve' (#0) failed", "out of stock"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error is %q, want one that contains %q", err, want)
			}
		}

		stopped, err := durable.Start(t.Context(), c, placeOrder, purchase{ID: "3"}, durable.InstanceID("stopped"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Terminate(t.Context(), stopped.ID, "enough"); err != nil {
			t.Error(err)
		}
		_, err = stopped.Wait(t.Context())
		terminated, ok := errors.AsType[*durable.OrchestrationFailedError](err)
		if !ok || terminated.Status != history.Terminated || err.Error() != "orchestration stopped was terminated: enough" {
			t.Errorf("error is %v, want an OrchestrationFailedError with status Terminated", err)
		}
	})
}

func TestWait_FailsForAnOutputOfAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := orders()
		defer run(t, h, r, durable.Config{})()
		c := durable.NewClient(h, r)
		i, err := durable.Start(t.Context(), c, placeOrder, purchase{ID: "1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := durable.InstanceOf[int](c, i.ID).Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "decode output of instance") {
			t.Errorf("error is %v, want a decode error", err)
		}
	})
}

func describeRun(ctx context.Context, _ durable.Void) (string, error) {
	info, ok := durable.ActivityInfoFrom(ctx)
	return fmt.Sprint(info.InstanceID, " ", info.Name, " ", info.TaskID, " ", info.Attempt, " ", ok), nil
}

func describeTwice(ctx *durable.Context, _ durable.Void) (string, error) {
	ctx.Logger().Info("described")
	if _, err := durable.CallActivity(ctx, describeRun, durable.Void{}).Await(); err != nil {
		return "", err
	}
	return durable.CallActivity(ctx, describeRun, durable.Void{}).Await()
}

func TestActivityInfo_DescribesTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := durable.NewRegistry(durable.Activity("DescribeRun", describeRun), durable.Orchestrator("Twice", describeTwice))
		var log bytes.Buffer
		stop := run(t, h, r, durable.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), describeTwice, durable.Void{}, durable.InstanceID("i"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != "i DescribeRun 1 1 true" {
			t.Errorf("output is %q, %v", out, err)
		}
		stop()
		if n := strings.Count(log.String(), "msg=described"); n != 1 {
			t.Errorf("the worker's log has the orchestrator's line %d times, want once:\n%s", n, &log)
		}
	})
}

func TestConfig_ZeroIsValidAndFieldsHaveRanges(t *testing.T) {
	if err := (durable.Config{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
	full := durable.Config{}.WithDefaults()
	if full.MaxConcurrentActivities < 10 || full.MaxConcurrentActivities%10 != 0 || full.MaxConcurrentOrchestrators != 64*full.MaxConcurrentActivities/10 ||
		full.ExtendedSessionIdle != 30*time.Second || full.ShutdownTimeout != 5*time.Second ||
		full.EpisodeWarnAfter != 10*time.Second || full.Logger == nil {
		t.Errorf("defaults are %+v", full)
	}
	kept := durable.Config{MaxConcurrentActivities: 3, ExtendedSessionIdle: time.Second}.WithDefaults()
	if kept.MaxConcurrentActivities != 3 || kept.ExtendedSessionIdle != time.Second {
		t.Errorf("WithDefaults changed set fields: %+v", kept)
	}
	if err := (durable.Config{ExtendedSessionIdle: -1}).Validate(); err != nil {
		t.Errorf("without extended sessions: %v", err)
	}
	for _, test := range []struct {
		config durable.Config
		want   string
	}{
		{durable.Config{MaxConcurrentActivities: -1}, "MaxConcurrentActivities is -1; want 1 to 100000"},
		{durable.Config{MaxConcurrentOrchestrators: 100_001}, "MaxConcurrentOrchestrators is 100001; want 1 to 100000"},
		{durable.Config{ExtendedSessionIdle: 25 * time.Hour}, "ExtendedSessionIdle is 25h0m0s; want more than 0 and at most 24h0m0s"},
		{durable.Config{ShutdownTimeout: 2 * time.Hour}, "ShutdownTimeout is 2h0m0s; want more than 0 and at most 1h0m0s"},
		{durable.Config{EpisodeWarnAfter: -1}, "EpisodeWarnAfter is -1ns; want more than 0 and at most 1h0m0s"},
	} {
		err := test.config.Validate()
		if err == nil || err.Error() != test.want {
			t.Errorf("error is %v, want %s", err, test.want)
		}
		if run := durable.NewWorker(memhub.New(), orders(), test.config).Run(t.Context()); run == nil || run.Error() != test.want {
			t.Errorf("Run's error is %v, want %s", run, test.want)
		}
	}
}
