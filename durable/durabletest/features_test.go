package durabletest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

var chargeRetry = durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 5 * time.Second, Coefficient: 2}

func payPatiently(ctx *durable.Context, o Order) (string, error) {
	return durable.CallActivity(ctx, Charge, o, chargeRetry).Await()
}

func TestRetries_TakeVirtualTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		failures int
		attempts int
		took     time.Duration
		want     string
	}{
		{"never", 0, 1, 0, "paid"},
		{"twice", 2, 3, 15 * time.Second, "paid"},
		{"always", 9, 4, 35 * time.Second, "card declined"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hub := durabletest.New(t, durable.Orchestrator("Pay", payPatiently), durable.Activity("Charge", Charge))
			durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) {
				if c.failures--; c.failures >= 0 {
					return "", errors.New("card declined")
				}
				return "paid", nil
			})
			got, err := durabletest.Run(hub, payPatiently, Order{ID: "42"})
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if n := len(durabletest.Calls(hub, Charge)); n != c.attempts || hub.Elapsed() != c.took {
				t.Errorf("%d attempts in %v, want %d in %v", n, hub.Elapsed(), c.attempts, c.took)
			}
		})
	}
}

// setUpSite calls a child for each device. The child's instance ID is derived from the device.
func setUpSite(ctx *durable.Context, devices []string) ([]string, error) {
	tasks := make([]*durable.Task[string], len(devices))
	for i, d := range devices {
		tasks[i] = durable.CallSubOrchestrator(ctx, setUpDevice, d, durable.InstanceID("device-"+d))
	}
	return durable.AwaitAll(ctx, tasks...)
}

const configured = durable.Event[string]("Configured")

func setUpDevice(ctx *durable.Context, _ string) (string, error) { return configured.Wait(ctx).Await() }

var site = []*durable.Registration{
	durable.Orchestrator("SetUpSite", setUpSite),
	durable.Orchestrator("SetUpDevice", setUpDevice),
}

func TestChildren_RunConcurrentlyWithTheirParent(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, site...)
	parent := durabletest.Start(hub, setUpSite, []string{"a", "b"})
	durabletest.Raise(durabletest.InstanceOf[string](hub, "device-a"), configured, "A")
	hub.After(time.Hour, func() { durabletest.Raise(durabletest.InstanceOf[string](hub, "device-b"), configured, "B") })
	got, err := parent.Wait()
	if diff := cmp.Diff(got, []string{"A", "B"}); diff != "" || err != nil {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
}

func TestStubOrchestrator_ReplacesAChild(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, site...)
	durabletest.StubOrchestrator(hub, setUpDevice, func(ctx *durable.Context, d string) (string, error) {
		if d == "bad" {
			return "", errors.New("unreachable")
		}
		ctx.Sleep(time.Minute)
		return strings.ToUpper(d), nil
	})
	if got, err := durabletest.Run(hub, setUpSite, []string{"a"}); err != nil || len(got) != 1 || got[0] != "A" {
		t.Errorf("got %v, %v", got, err)
	}
	if hub.Elapsed() != time.Minute {
		t.Errorf("took %v, want a minute", hub.Elapsed())
	}
	if _, err := durabletest.Run(hub, setUpSite, []string{"bad"}); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("got %v, want an error: unreachable", err)
	}
}

func TestWait_ReportsTheAwaitedChild(t *testing.T) {
	t.Parallel()
	contains(t, fails(t, func(t durabletest.TB) {
		hub := durabletest.New(t, site...)
		_, _ = durabletest.Run(hub, setUpSite, []string{"a"})
	}),
		"\n  \"device-a\" of SetUpDevice, Running:\n    waits for event Configured, since 2000-01-01T00:00:00Z (0s ago)\n",
		"\n  \"instance-1\" of SetUpSite, Running:\n    waits for sub-orchestration SetUpDevice (task 0), instance \"device-a\", since 2000-01-01T00:00:00Z (0s ago)\n")
}

// If the child's ID is in use, the call fails and the instance with the ID keeps running.
func TestChildren_CannotUseTheIDOfARunningInstance(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, site...)
	first := durabletest.Start(hub, setUpDevice, "a", durable.InstanceID("device-a"))
	if _, err := durabletest.Run(hub, setUpSite, []string{"a"}); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("got %v, want an error: already exists", err)
	}
	durabletest.Raise(first, configured, "still here")
	if got, err := first.Wait(); got != "still here" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func checkout(ctx *durable.Context, o Order) (string, error) {
	if ctx.VersionAtLeast("1.1") {
		return "checked " + o.ID, nil
	}
	return "old " + o.ID, nil
}

func checkoutV2(*durable.Context, Order) (string, error) { return "new", nil }

func TestVersions_SelectTheOrchestrator(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, durable.Orchestrator("Checkout", checkout), durable.Orchestrator("Checkout", checkoutV2, durable.Version("2.0")))
	for version, want := range map[durable.Version]string{"1.0": "old 9", "1.1": "checked 9", "2.0": "new"} {
		if got, err := durabletest.Run(hub, checkout, Order{ID: "9"}, version); got != want || err != nil {
			t.Errorf("version %s: got %q, %v, want %q", version, got, err, want)
		}
	}
	durabletest.StubOrchestrator(hub, checkoutV2, func(*durable.Context, Order) (string, error) { return "stub", nil })
	if got, err := durabletest.Run(hub, checkoutV2, Order{}); got != "stub" || err != nil {
		t.Errorf("got %q, %v, want stub", got, err)
	}
	if got, err := durabletest.Run(hub, checkout, Order{ID: "9"}); got != "old 9" || err != nil {
		t.Errorf("got %q, %v, want the other version unchanged", got, err)
	}
}

func TestStartAt_UsesVirtualTime(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	i := durabletest.Start(hub, PlaceOrder, Order{ID: "1"}, durable.StartAt(hub.Now().Add(24*time.Hour)))
	if i.Status() != history.Pending {
		t.Errorf("status is %s before the start time", i.Status())
	}
	if got, err := i.Wait(); got != "c-1" || err != nil || hub.Elapsed() != 24*time.Hour {
		t.Errorf("got %q, %v after %v, want c-1 after a day", got, err, hub.Elapsed())
	}
}

func TestLogger_WritesEachLineOnce(t *testing.T) {
	t.Parallel()
	o := func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		ctx.Logger().Info("before")
		ctx.Sleep(time.Minute)
		ctx.Logger().Debug("after", "slept", true)
		return durable.Void{}, nil
	}
	r := record(func(t durabletest.TB) {
		hub := durabletest.New(t, durable.Orchestrator("O", o))
		_, _ = durabletest.Run(hub, o, durable.Void{})
	})
	want := []string{
		`elapsed=0s level=INFO msg=before instanceId=instance-1 executionId=00000000000000000000000000000001 name=O`,
		`elapsed=1m0s level=DEBUG msg=after instanceId=instance-1 executionId=00000000000000000000000000000001 name=O slept=true`,
	}
	if diff := cmp.Diff(r.log, want); diff != "" {
		t.Errorf("log (-got +want):\n%s", diff)
	}
}

// Rewind retries the failed activity, on a history without the failure's events.
func TestClient_RewindsAFailedInstance(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) { return "", errors.New("card declined") })
	durabletest.Stub(hub, Release, func(context.Context, string) (durable.Void, error) { return durable.Void{}, errors.New("no answer") })
	i := durabletest.Start(hub, PlaceOrder, Order{ID: "42"})
	if i.Status() != history.Failed {
		t.Fatalf("status is %s, want Failed", i.Status())
	}
	durabletest.Stub(hub, Release, func(context.Context, string) (durable.Void, error) { return durable.Void{}, nil })

	if err := hub.Client().Rewind(t.Context(), i.ID, "there is an answer"); err != nil {
		t.Fatal(err)
	}

	if _, err := i.Wait(); err == nil || strings.Contains(err.Error(), "no answer") || !strings.Contains(err.Error(), "card declined") {
		t.Errorf("got %v, want the first failure only", err)
	}
	if n := len(durabletest.Calls(hub, Release)); n != 2 {
		t.Errorf("Release was called %d times, want 2", n)
	}
	durabletest.ReplayEvents(t, functions, i.History())
	if _, err := hub.Client().Purge(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.Client().Status(t.Context(), i.ID, durable.Fetch{}); !errors.Is(err, durable.ErrInstanceNotFound) {
		t.Errorf("got %v, want an error: the instance is purged", err)
	}
}

// A call fails, the orchestrator reacts by another decision, and then an activity fails. Rewind
// retries only that activity.
func TestClient_RewindKeepsHandledFailures(t *testing.T) {
	t.Parallel()
	type void = durable.Void
	retry := durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Minute}
	failures, isRepaired := 0, false
	flaky := func(context.Context, void) (void, error) { failures++; return void{}, errors.New("flaky") }
	steady := func(context.Context, void) (void, error) { return void{}, nil }
	fragile := func(ctx context.Context, _ void) (void, error) {
		durabletest.Spend(ctx, time.Second) // rewind identifies the episode that decided a step by its time
		if isRepaired {
			return void{}, nil
		}
		return void{}, errors.New("fragile")
	}
	flakyChild := func(ctx *durable.Context, _ void) (void, error) {
		return durable.CallActivity(ctx, flaky, void{}).Await()
	}
	steadyChild := func(ctx *durable.Context, _ void) (void, error) {
		return durable.CallActivity(ctx, steady, void{}).Await()
	}
	step := func(f func(context.Context, void) (void, error)) func(context.Context) (void, error) {
		return func(ctx context.Context) (void, error) { return f(ctx, void{}) }
	}
	calls := map[string]func(*durable.Context) *durable.Task[void]{
		"an activity":       func(ctx *durable.Context) *durable.Task[void] { return durable.CallActivity(ctx, flaky, void{}) },
		"an activity twice": func(ctx *durable.Context) *durable.Task[void] { return durable.CallActivity(ctx, flaky, void{}, retry) },
		"a child": func(ctx *durable.Context) *durable.Task[void] {
			return durable.CallSubOrchestrator(ctx, flakyChild, void{})
		},
		"a child twice": func(ctx *durable.Context) *durable.Task[void] {
			return durable.CallSubOrchestrator(ctx, flakyChild, void{}, retry)
		},
		"a step":       func(ctx *durable.Context) *durable.Task[void] { return durable.Step(ctx, "flaky", step(flaky)) },
		"a step twice": func(ctx *durable.Context) *durable.Task[void] { return durable.Step(ctx, "flaky", step(flaky), retry) },
	}
	reactions := map[string]func(*durable.Context){
		"an activity": func(ctx *durable.Context) { _, _ = durable.CallActivity(ctx, steady, void{}).Await() },
		"a child":     func(ctx *durable.Context) { _, _ = durable.CallSubOrchestrator(ctx, steadyChild, void{}).Await() },
		"a step":      func(ctx *durable.Context) { _, _ = durable.Step(ctx, "steady", step(steady)).Await() },
		"a timer":     func(ctx *durable.Context) { ctx.Sleep(time.Hour) },
	}
	main := func(ctx *durable.Context, chosen [2]string) (void, error) {
		if _, err := calls[chosen[0]](ctx).Await(); err == nil {
			return void{}, errors.New("the call succeeded")
		}
		reactions[chosen[1]](ctx)
		return durable.CallActivity(ctx, fragile, void{}).Await()
	}
	functions := []*durable.Registration{
		durable.Orchestrator("Main", main), durable.Orchestrator("FlakyChild", flakyChild), durable.Orchestrator("SteadyChild", steadyChild),
		durable.Activity("Flaky", flaky), durable.Activity("Steady", steady), durable.Activity("Fragile", fragile),
	}
	for call := range calls {
		for reaction := range reactions {
			t.Run(call+" fails, then "+reaction, func(t *testing.T) {
				hub := durabletest.New(t, functions...)
				isRepaired = false
				i := durabletest.Start(hub, main, [2]string{call, reaction})
				if _, err := i.Wait(); err == nil || !strings.Contains(err.Error(), "fragile") {
					t.Fatalf("got %v, want the failure of the last activity", err)
				}
				before := failures
				isRepaired = true
				if err := hub.Client().Rewind(t.Context(), i.ID, "again"); err != nil {
					t.Fatal(err)
				}
				if _, err := i.Wait(); err != nil || failures != before {
					t.Errorf("after the rewind, the call failed %d more times, and the instance ended with %v", failures-before, err)
				}
			})
		}
	}
}

func TestClient_DoesNotRewindAnInstanceWhoseLocksAreReleased(t *testing.T) {
	t.Parallel()
	isRepaired := false
	fragile := func(context.Context, durable.Void) (durable.Void, error) {
		if isRepaired {
			return durable.Void{}, nil
		}
		return durable.Void{}, errors.New("fragile")
	}
	main := func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		defer durable.LockEntities(ctx, balanceOf)()
		return durable.CallActivity(ctx, fragile, durable.Void{}).Await()
	}
	hub := durabletest.New(t, durable.Orchestrator("Main", main), durable.Activity("Fragile", fragile), durable.Entity("Balance", durable.Op("add", (*balance).add)))
	i := durabletest.Start(hub, main, durable.Void{})
	_, before := i.Wait()
	isRepaired = true
	if err := hub.Client().Rewind(t.Context(), i.ID, "again"); !errors.Is(err, durable.ErrLocksReleased) {
		t.Errorf("rewind: got %v, want %v", err, durable.ErrLocksReleased)
	}
	if _, err := i.Wait(); err == nil || err.Error() != before.Error() || i.Status() != history.Failed {
		t.Errorf("the instance has status %v and error %v; want Failed and %v", i.Status(), err, before)
	}
}

// Continue-as-new keeps events that were not awaited. Detached children keep running.
func TestHub_KeepsEventsAcrossGenerationsAndRunsDetachedChildren(t *testing.T) {
	t.Parallel()
	const tick = durable.Event[int]("Tick")
	var sum func(*durable.Context, []int) ([]int, error)
	child := func(ctx *durable.Context, n int) (int, error) { ctx.Sleep(time.Hour); return n, nil }
	sum = func(ctx *durable.Context, seen []int) ([]int, error) {
		n, err := tick.Wait(ctx).Await()
		if err != nil || n == 0 {
			return seen, err
		}
		if _, err := durable.CallSubOrchestrator(ctx, child, n, durable.FireAndForget).Await(); err != nil {
			return nil, err
		}
		return durable.ContinueAsNew(ctx, sum, append(seen, n))
	}
	hub := durabletest.New(t, durable.Orchestrator("Sum", sum), durable.Orchestrator("Child", child))
	i := durabletest.Start(hub, sum, nil)
	for _, n := range []int{1, 2, 3, 0} {
		if err := tick.Raise(t.Context(), hub.Client(), i.ID, n); err != nil {
			t.Fatal(err)
		}
	}
	got, err := i.Wait()
	if diff := cmp.Diff(got, []int{1, 2, 3}); diff != "" || err != nil {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
	hub.Advance(time.Hour)
	page, err := hub.Client().ListInstances(t.Context(), durable.Query{Name: "Child", Statuses: []history.RuntimeStatus{history.Completed}})
	if err != nil || len(page.Instances) != 3 {
		t.Errorf("%d children have ended (%v), want 3", len(page.Instances), err)
	}
}
