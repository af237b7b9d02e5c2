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

// See VersioningSettings.cs, CompareVersions.
func TestVersion_ComparesLikeDotNet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b durable.Version
		want int
	}{
		{"", "", 0},
		{"", " ", 0},
		{"", "1.0", -1},
		{"1.0", "", 1},
		{"", "a", -1},
		{"1.0", "1.0", 0},
		{"1.1.0", "1.0.0", 1},
		{"1.10", "1.9", 1},
		{"2.0", "10.0", -1},
		{"1.0", "1.0.0", -1},
		{"1.0.0.1", "1.0.0", 1},
		{" 1.2 ", "1.2", 0},
		{"1.02", "1.2", 0},
		{"1", "2", -1},
		{"10", "9", -1}, // one number is not a System.Version, so these are compared as text
		{"beta", "BETA", 0},
		{"alpha", "beta", -1},
		{"1.0-rc", "1.0", 1},
		{"1.0.0.0.0", "1.0", 1},
		{"1.-1", "1.0", -1},
	} {
		if got := c.a.Compare(c.b); got != c.want {
			t.Errorf("%q.Compare(%q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := c.b.Compare(c.a); got != -c.want {
			t.Errorf("%q.Compare(%q) = %d, want %d", c.b, c.a, got, -c.want)
		}
	}
}

func askVersion(ctx context.Context, _ durable.Void) (string, error) {
	info, _ := durable.ActivityInfoFrom(ctx)
	return fmt.Sprint(info.Version, " ", info.Tags), nil
}

func versionOf(ctx *durable.Context, _ durable.Void) (string, error) {
	of, err := durable.CallActivity(ctx, askVersion, durable.Void{}, durable.Tags{"a": "1"}).Await()
	return fmt.Sprintf("%q, at least 1.1: %t, activity: %s", ctx.Version(), ctx.VersionAtLeast("1.1"), of), err
}

func childVersions(ctx *durable.Context, _ durable.Void) ([]string, error) {
	return durable.AwaitAll(
		ctx,
		durable.CallSubOrchestrator(ctx, versionOf, durable.Void{}),
		durable.CallSubOrchestrator(ctx, versionOf, durable.Void{}, durable.Version("0.9")),
		durable.CallSubOrchestrator(ctx, versionOf, durable.Void{}, durable.Version("")))
}

func TestVersion_IsKeptInheritedAndChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("VersionOf", versionOf), durable.Orchestrator("Children", childVersions), durable.Activity("Ask", askVersion))
		defer run(t, h, r, durable.Config{Version: "2.0"})()
		c := durable.NewClient(h, r, durable.Version("1.1"))
		for _, test := range []struct {
			opts []durable.StartOption
			want string
		}{
			{nil, `"1.1", at least 1.1: true, activity: 1.1 map[a:1]`},
			{[]durable.StartOption{durable.Version("1.0")}, `"1.0", at least 1.1: false, activity: 1.0 map[a:1]`},
			{[]durable.StartOption{durable.Version("")}, `"", at least 1.1: false, activity:  map[a:1]`},
		} {
			i, err := durable.Start(t.Context(), c, versionOf, durable.Void{}, test.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := i.Wait(t.Context()); err != nil || out != test.want {
				t.Errorf("output %q, %v, want %q", out, err, test.want)
			}
		}
		parent, err := durable.Start(t.Context(), c, childVersions, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := parent.Wait(t.Context())
		if got, want := strings.Join(out, "; "), `"2.0", at least 1.1: true, activity: 2.0 map[a:1]; `+
			`"0.9", at least 1.1: false, activity: 0.9 map[a:1]; "", at least 1.1: false, activity:  map[a:1]`; err != nil || got != want {
			t.Errorf("children %s, %v\nwant %s", got, err, want)
		}
	})
}

func checkoutV1(*durable.Context, durable.Void) (string, error)  { return "one", nil }
func checkoutV2(*durable.Context, durable.Void) (string, error)  { return "two", nil }
func checkoutAny(*durable.Context, durable.Void) (string, error) { return "any", nil }

func callCheckouts(ctx *durable.Context, _ durable.Void) ([]string, error) {
	const byName = durable.OrchestratorName[durable.Void, string]("Checkout")
	return durable.AwaitAll(
		ctx,
		durable.CallSubOrchestrator(ctx, checkoutV1, durable.Void{}),
		durable.CallSubOrchestrator(ctx, checkoutV2, durable.Void{}),
		byName.Call(ctx, durable.Void{}, durable.Version("1.0")),
		byName.Call(ctx, durable.Void{}, durable.Version("7")))
}

func sideBySide(more ...*durable.Registration) *durable.Registry {
	r := durable.NewRegistry(
		durable.Orchestrator("Checkout", checkoutV1, durable.Version("1.0")),
		durable.Orchestrator("checkout", checkoutV2, durable.Version("2.0")),
		durable.Orchestrator("Call", callCheckouts))
	r.Add(more...)
	return r
}

func TestVersion_SelectsItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := sideBySide(durable.Orchestrator("Checkout", checkoutAny))
		defer run(t, h, r, durable.Config{})()
		c := durable.NewClient(h, r)
		i, err := durable.Start(t.Context(), c, callCheckouts, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || strings.Join(out, " ") != "one two one any" {
			t.Errorf("output %v, %v", out, err)
		}
		byRef, err := durable.Start(t.Context(), c, checkoutV2, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := byRef.Status(t.Context(), durable.Fetch{}); err != nil || s.Version != "2.0" {
			t.Errorf("a start by reference has version %q, %v", s.Version, err)
		}
		if out, err := byRef.Wait(t.Context()); err != nil || out != "two" {
			t.Errorf("output %q, %v", out, err)
		}
	})
}

func TestVersion_WaitsForAWorkerThatHasItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		stop := run(t, h, sideBySide(), durable.Config{})
		c := durable.NewClient(h, nil)
		if _, err := c.StartByName(t.Context(), "Checkout", nil, durable.InstanceID("i"), durable.Version("3.0")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s, err := c.Status(t.Context(), "i", durable.Fetch{}); err != nil || s.Status != history.Pending {
			t.Errorf("instance is %+v, %v; want status Pending", s, err)
		}
		stop()
		defer run(t, h, sideBySide(durable.Orchestrator("Checkout", checkoutAny, durable.Version("3.0"))), durable.Config{})()
		if out, err := durable.InstanceOf[string](c, "i").Wait(t.Context()); err != nil || out != "any" {
			t.Errorf("output %q, %v", out, err)
		}
	})
}

func TestRegistry_RejectsTwoFunctionsForOneVersion(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "are the same; case is ignored") {
			t.Errorf("panicked with %s", got)
		}
	}()
	sideBySide(durable.Orchestrator("CHECKOUT", checkoutAny, durable.Version("1.0")))
}

// See OrchestrationFailsWithVersionMismatch and OrchestrationRejectsWithVersionMismatch
// in DurableTask.AzureStorage.Tests.
func TestVersionMatch_SelectsTheInstancesOfAWorker(t *testing.T) {
	const greater = "the orchestration version '2.0' is greater than the worker version '1.0'"
	for _, c := range []struct {
		name      string
		worker    durable.Version
		instance  durable.Version
		match     durable.VersionMatchStrategy
		rejection string
	}{
		{"none accepts all", "1.0", "2.0", durable.MatchNone, ""},
		{"current or older rejects newer", "1.0", "2.0", durable.MatchCurrentOrOlder, greater},
		{"current or older accepts the same", "2.0", "2.0", durable.MatchCurrentOrOlder, ""},
		{"current or older accepts older", "1.0.0", "0.9.0", durable.MatchCurrentOrOlder, ""},
		{"current or older accepts none", "1.0", "", durable.MatchCurrentOrOlder, ""},
		{"strict accepts the same", "2.0", "2.0", durable.MatchStrict, ""},
		{"strict rejects older", "2.0", "1.0", durable.MatchStrict, "the orchestration version '1.0' does not match the worker version '2.0'"},
		{"strict rejects none", "2.0", "", durable.MatchStrict, "the orchestration version '' does not match the worker version '2.0'"},
		{"a worker without a version accepts all", "", "2.0", durable.MatchStrict, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, failure := range []durable.VersionFailureStrategy{durable.RejectMismatch, durable.FailMismatch} {
				synctest.Test(t, func(t *testing.T) {
					h := memhub.New()
					r := durable.NewRegistry(durable.Orchestrator("Any", checkoutAny))
					defer run(t, h, r, durable.Config{Version: c.worker, VersionMatch: c.match, VersionFailure: failure})()
					client := durable.NewClient(h, r)
					i, err := durable.Start(t.Context(), client, checkoutAny, durable.Void{}, c.instance)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Second)
					s, err := i.Status(t.Context(), durable.Fetch{Output: true})
					if err != nil {
						t.Fatal(err)
					}
					events, err := i.History(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					switch {
					case c.rejection == "":
						if s.Status != history.Completed {
							t.Errorf("status is %v, want Completed", s.Status)
						}
					case failure == durable.RejectMismatch:
						if s.Status != history.Pending || len(events) != 0 {
							t.Errorf("status is %v with %d events, want Pending without events", s.Status, len(events))
						}
					default:
						const text = "Orchestration version did not comply with Worker Versioning"
						if s.Status != history.Failed || *s.Output != "VersionMismatch: "+text {
							t.Fatalf("status is %v, want Failed", s.Status)
						}
						f := events[len(events)-2].(*history.ExecutionCompleted).Failure
						if f.InnerFailure == nil || f.InnerFailure.ErrorMessage != c.rejection || !f.IsNonRetriable {
							t.Errorf("failure is %+v, want inner failure %q", f, c.rejection)
						}
					}
				})
			}
		})
	}
}

func TestVersionMatch_FailsARunningInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("WaitForGo", waitForGo), durable.Orchestrator("Sleeper", sleepyHead), durable.Activity("SayHello", sayHello))
		stop := run(t, h, r, durable.Config{Version: "2.0"})
		c := durable.NewClient(h, r)
		i, err := durable.Start(t.Context(), c, sleepyHead, durable.Void{}, durable.Version("2.0"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stop()
		defer run(t, h, r, durable.Config{Version: "1.0", VersionFailure: durable.FailMismatch})()
		_, err = i.Wait(t.Context())
		if failed, ok := errors.AsType[*durable.OrchestrationFailedError](err); !ok || !strings.HasPrefix(*failed.Output, "VersionMismatch: ") {
			t.Errorf("ended with %v, want a version mismatch", err)
		}
	})
}

func sleepyHead(ctx *durable.Context, _ durable.Void) (string, error) {
	if _, err := durable.CallActivity(ctx, sayHello, "you").Await(); err != nil {
		return "", err
	}
	ctx.Sleep(time.Hour)
	return "slept", nil
}

func TestConfig_RejectsUnknownStrategies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  durable.Config
		want string
	}{
		{durable.Config{VersionMatch: 7}, "VersionMatch is 7; want MatchCurrentOrOlder, MatchStrict or MatchNone"},
		{durable.Config{VersionFailure: -1}, "VersionFailure is -1; want RejectMismatch or FailMismatch"},
		{durable.Config{MaxOrchestrationActions: -1}, "MaxOrchestrationActions is -1; want 1 to 100000000"},
	} {
		if err := c.cfg.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
