package durabletest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
)

func TestWait_FailsAtOnceIfTheInstanceCannotEnd(t *testing.T) {
	t.Parallel()
	got := fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		hub.Advance(time.Hour)
		durabletest.Start(hub, Decide, durable.Void{}, durable.InstanceID("other")).Suspend("audit")
		i := durabletest.Start(hub, Decide, durable.Void{}, durable.InstanceID("order-42"))
		hub.Advance(time.Minute)
		durabletest.Raise(i, durable.Event[int]("Aproval"), 1)
		_, _ = i.Wait()
	})
	want := `durabletest: instance "order-42" cannot end: no work or timer is left. The hub's time is 2000-01-01T01:01:00Z, 1h1m0s after New.
  "order-42" of Decide, Running:
    waits for event Approval, since 2000-01-01T01:00:00Z (1m0s ago)
    waits for event Withdrawn, since 2000-01-01T01:00:00Z (1m0s ago)
    has received events that it does not wait for: Aproval
  "other" of Decide, Suspended:
    is suspended (audit), since 2000-01-01T01:00:00Z (1m0s ago)
    waits for event Approval, since 2000-01-01T01:00:00Z (1m0s ago)
    waits for event Withdrawn, since 2000-01-01T01:00:00Z (1m0s ago)
Raise the event before you wait for the instance, or at a chosen time with Hub.After.`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestWait_ReportsDeadlockedBranches(t *testing.T) {
	t.Parallel()
	knot := func(ctx *durable.Context, _ durable.Void) (int, error) {
		var second *durable.Task[int]
		first := durable.Go(ctx, func() (int, error) { return second.Await() })
		second = durable.Go(ctx, func() (int, error) { return first.Await() })
		return first.Await()
	}
	got := fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, durable.Orchestrator("Knot", knot))
		_, _ = durabletest.Run(hub, knot, durable.Void{})
	})
	contains(t, got, `"instance-1" of Knot, Running:`, "its branches wait for each other")
}

func TestRun_FailsForAnUnregisteredFunction(t *testing.T) {
	t.Parallel()
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		_, _ = durabletest.Run(hub, ShipOrder, Order{ID: "1"})
	}), `instance "instance-1" called activity "Carry" (task 0) with input [{"id":"1","cents":0}]`, "StubName")
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		_, _ = durabletest.Run(hub, count, 0)
	}), "orchestrator", "count is not registered")
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		if _, err := hub.Client().StartByName(context.Background(), "Unknown", nil, durable.InstanceID("x")); err != nil {
			t.Fatalf("%v", err)
		}
		hub.Advance(0)
	}), `instance "x" needs orchestrator "Unknown"`)
	contains(t, fails(t, func(t durabletest.TB) {
		durabletest.Stub(durabletest.New(t), Charge, Charge)
	}), "Charge is not registered", "pass its Function to New")
}

func TestRun_LogsTheStackOfAPanic(t *testing.T) {
	t.Parallel()
	var err error
	r := record(func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) { panic("no card reader") })
		_, err = durabletest.Run(hub, PlaceOrder, Order{ID: "1"})
	})
	if r.fatal != "" || err == nil {
		t.Fatalf("got %v, the test failed with %q; want an error", err, r.fatal)
	}
	contains(t, err.Error(), "charge card", "panic: no card reader")
	contains(t, strings.Join(r.log, "\n"), `activity "Charge" (task 1 of instance "instance-1") ended by a panic`, "failure_test.go")

	breaks := func(ctx *durable.Context, _ durable.Void) (int, error) {
		var orders []Order
		return orders[len(ctx.InstanceID())].Cents, nil
	}
	r = record(func(t durabletest.TB) {
		hub := durabletest.New(t, durable.Orchestrator("Breaks", breaks))
		_, err = durabletest.Run(hub, breaks, durable.Void{})
	})
	if r.fatal != "" || err == nil {
		t.Fatalf("got %v, the test failed with %q; want an error", err, r.fatal)
	}
	contains(t, err.Error(), "index out of range")
	contains(t, strings.Join(r.log, "\n"), `the orchestrator of instance "instance-1" ended by a panic`, "failure_test.go")
}

func TestRun_FailsAfterMaxEpisodes(t *testing.T) {
	t.Parallel()
	got := fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		hub.MaxEpisodes = 100
		_, _ = durabletest.Run(hub, Monitor, Watch{"j", time.Minute, hub.Now().AddDate(1000, 0, 0)})
	})
	contains(t, got, "run 100 episodes", `the last was of instance "instance-1"`, "Hub.MaxEpisodes")
}

func TestHub_RejectsNestedWaits(t *testing.T) {
	t.Parallel()
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) {
			hub.Advance(time.Hour)
			return "", nil
		})
		_, _ = durabletest.Run(hub, PlaceOrder, Order{})
	}), "Advance was called while the hub runs")
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		i := durabletest.Start(hub, Approve, Order{})
		hub.After(0, func() { _, _ = i.Wait() })
		hub.Advance(0)
	}), "Wait was called while the hub runs")
	contains(t, fails(t, func(t durabletest.TB) {
		durabletest.New(t).AdvanceTo(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	}), "AdvanceTo(1999-01-01T00:00:00Z)", "already 2000-01-01T00:00:00Z")
}

func TestInstance_FailsTheTestIfARequestIsRejected(t *testing.T) {
	t.Parallel()
	ended := func(t durabletest.TB) *durabletest.Instance[string] {
		hub := durabletest.New(t, functions...)
		i := durabletest.Start(hub, PlaceOrder, Order{})
		return i
	}
	for name, act := range map[string]func(t durabletest.TB){
		"raise":     func(t durabletest.TB) { durabletest.Raise(ended(t), Approval, Decision{}) },
		"terminate": func(t durabletest.TB) { ended(t).Terminate("x") },
		"suspend":   func(t durabletest.TB) { ended(t).Suspend("x") },
		"resume":    func(t durabletest.TB) { ended(t).Resume("x") },
	} {
		contains(t, fails(t, act), "instance")
		_ = name
	}
	contains(t, fails(t, func(t durabletest.TB) {
		durabletest.InstanceOf[int](durabletest.New(t), "unknown").Status()
	}), "unknown", "not found")
}
