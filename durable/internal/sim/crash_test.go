package sim_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

type crashApp struct {
	name string
	app  sim.App
}

// crashApps are the apps of the crash tests.
var crashApps = []crashApp{
	{"hello sequence", oneProgram(sim.Step{Kind: sim.CallStep}, sim.Step{Kind: sim.CallStep}, sim.Step{Kind: sim.CallStep})},
	{"fan-out of 10", oneProgram(sim.Step{Kind: sim.FanOutStep, Count: 10})},
	{"timer", oneProgram(sim.Step{Kind: sim.SleepStep, Wait: 5 * time.Second})},
	{"event", withEvent(oneProgram(sim.Step{Kind: sim.EventStep, Event: "go"}))},
	{"sub-orchestration", sim.App{
		Programs: []sim.Program{
			{Steps: []sim.Step{{Kind: sim.ChildStep, Count: 1, Child: 1}}},
			{Steps: []sim.Step{{Kind: sim.CallStep}}},
		},
		Instances: []sim.Instance{{ID: "i0"}},
	}},
	{"continue-as-new", sim.App{
		Programs:  []sim.Program{{Steps: []sim.Step{{Kind: sim.CallStep}}, Rounds: 2}},
		Instances: []sim.Instance{{ID: "i0"}},
	}},
	{"large payloads", oneProgram(sim.Step{Kind: sim.BigStep}, sim.Step{Kind: sim.CallStep})},
}

// largeApps are apps whose payloads fit neither into messages nor into rows.
var largeApps = []crashApp{
	{"steps", large(withEvent(sim.App{
		Programs: []sim.Program{
			{Steps: []sim.Step{
				{Kind: sim.FanOutStep, Count: 2},
				{Kind: sim.FailStep},
				{Kind: sim.StatusStep},
				{Kind: sim.ChildStep, Count: 1, Child: 1},
				{Kind: sim.EventStep, Event: "go"},
				{Kind: sim.SendStep, Peer: "i1", Event: "sent"},
			}},
			{Steps: []sim.Step{{Kind: sim.CallStep}}, Fails: true},
			{Steps: []sim.Step{{Kind: sim.ReceiveStep, Event: "sent"}}},
			{Steps: []sim.Step{{Kind: sim.EventStep, Event: "never"}}},
		},
		Instances: []sim.Instance{
			{ID: "i0", Suspended: 4 * time.Second},
			{ID: "i1", Program: 2, At: 3 * time.Second},
			{ID: "i2", Program: 3, At: 3 * time.Second, Terminated: 5 * time.Second},
		},
	}))},
	{"continue-as-new", large(sim.App{
		Programs:  []sim.Program{{Steps: []sim.Step{{Kind: sim.CallStep}}, Rounds: 3}},
		Instances: []sim.Instance{{ID: "i0"}},
	})},
	{"entities", large(sim.App{
		Ledgers: []string{"a", "b"},
		Programs: []sim.Program{{Steps: []sim.Step{{Kind: sim.LedgerStep, Acts: []sim.Act{
			{Kind: sim.ForwardAct, Ledger: "a", To: "b", Amount: 1},
			{Kind: sim.CallAct, Index: 1, Ledger: "a", Amount: 2},
			{Kind: sim.RefuseAct, Index: 2, Ledger: "b", To: "a", Amount: 3},
			{Kind: sim.CloseAct, Index: 3, Ledger: "b"},
		}}}}},
		Instances: []sim.Instance{{ID: "i0"}},
	})},
}

func large(app sim.App) sim.App {
	app.Large = true
	return app
}

func oneProgram(steps ...sim.Step) sim.App {
	return sim.App{Programs: []sim.Program{{Steps: steps}}, Instances: []sim.Instance{{ID: "i0"}}}
}

func withEvent(app sim.App) sim.App {
	app.Instances[0].Raised = []sim.RaisedEvent{{Name: "go", At: 5 * time.Second}}
	return app
}

// crashPlan returns a plan for one worker, which is replaced when it dies. The hub exists and the worker has
// its partitions before the instance is started.
func crashPlan(app sim.App) *sim.Plan {
	app.Instances[0].At = 3 * time.Second
	plan := &sim.Plan{Seed: 7, App: &app, Workers: 1, Partitions: 2, Skews: []time.Duration{0}, Pace: 10 * time.Millisecond}
	if app.Inline > 0 {
		plan.Activities = parallelSteps
	}
	return plan
}

// runCrash injects a fault into the n-th request of the first worker, counted from 1. It returns the faults
// that the simulation found and the number of that worker's requests.
func runCrash(t *testing.T, hub string, plan *sim.Plan, fault azsim.Fault, n int) (faults []string, requests int, trace string) {
	t.Helper()
	faults, account := runWithFaults(t, hub, plan, atRequest("w0.0", fault, n))
	return faults, numberOf(account.Log(), "w0.0"), account.Trace()
}

// atRequest injects a fault into the n-th request of a worker.
func atRequest(worker string, fault azsim.Fault, n int) func(azsim.Request) azsim.Fault {
	return func(r azsim.Request) azsim.Fault {
		if r.Worker == worker && r.Number == n {
			return fault
		}
		return azsim.None
	}
}

// eachApp runs a test with each app on each hub in an account.
func eachApp(t *testing.T, apps []crashApp, test func(t *testing.T, hub string, app sim.App)) {
	for _, c := range apps {
		for _, hub := range storedHubs {
			t.Run(c.name+"/"+hub, func(t *testing.T) { test(t, hub, c.app) })
		}
	}
}

// A worker that dies before or after any of its requests loses nothing, does nothing twice, and leaves no
// data behind.
func TestCrash_AWorkerMayDieAtAnyRequest(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, crashApps, func(t *testing.T, hub string, app sim.App) {
		killAtRequests(t, hub, app, interval(hub, usual().crashEvery))
	})
}

// killAtRequests kills the first worker before and after every n-th request, with n = every.
func killAtRequests(t *testing.T, hub string, app sim.App, every int) {
	t.Helper()
	faults, requests, _ := runCrash(t, hub, crashPlan(app), azsim.None, 0)
	if len(faults) > 0 {
		t.Fatalf("faults without an injected crash: %s", strings.Join(faults, "\n"))
	}
	injectAtRequests(t, hub, app, every, requests, azsim.KillBefore, azsim.KillAfter)
}

// injectAtRequests injects each of the faults into every n-th request of the first worker, with n = every.
func injectAtRequests(t *testing.T, hub string, app sim.App, every, requests int, faults ...azsim.Fault) {
	t.Helper()
	tryAt(t, requests, every, faults, func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account) {
		plan := crashPlan(app)
		found, account := runWithFaults(t, hub, plan, atRequest("w0.0", fault, n))
		return plan, found, account
	})
}

// tryAt calls run with each fault at this process's share of the points (see pointsOf). It ends the test at
// the first failure.
func tryAt(t *testing.T, n, every int, faults []azsim.Fault, run func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account)) {
	t.Helper()
	points := pointsOf(t, n, every)
	for _, fault := range faults {
		for _, at := range points {
			flags := fmt.Sprintf("-sim.request=%d", at)
			var plan *sim.Plan
			var found []string
			var account *azsim.Account
			repeatable(t, flags, func() { plan, found, account = run(fault, at) })
			if len(found) > 0 {
				trace := account.Trace()
				found = append([]string{around(trace, fault), fmt.Sprintf("%v at %d of %d", fault, at, n)}, found...)
				report(t, plan, found, trace, flags)
				t.FailNow()
			}
		}
	}
	t.Logf("%v at %d of %d", faults, len(points), n)
}

// pointsOf returns this process's share of the numbers 1, 1+every, ... up to n. With -sim.request it returns
// only that number.
func pointsOf(t *testing.T, n, every int) (points []int) {
	if *request > 0 {
		return []int{*request}
	}
	for i := 0; 1+i*every <= n; i++ {
		if testshare.Has(t, i) {
			points = append(points, 1+i*every)
		}
	}
	return points
}

// interval returns the interval between the requests at which a fault is injected. usual is the interval for
// Azure queues and tables. The interval is longer for partition logs. Most of their requests only check for
// mail.
func interval(hub string, usual int) int {
	switch {
	case *every > 0:
		return *every
	case hub == "log":
		return 8 * usual
	}
	return usual
}

// stepApps are apps of durable steps. The results of the parallel steps do not fit into one transaction.
var stepApps = []crashApp{
	{"sequence", allSteps(oneProgram(sim.Step{Kind: sim.CallStep}, sim.Step{Kind: sim.CallStep}, sim.Step{Kind: sim.CallStep}))},
	{"parallel", allSteps(oneProgram(sim.Step{Kind: sim.FanOutStep, Count: parallelSteps}))},
}

const parallelSteps = 120

func allSteps(app sim.App) sim.App {
	app.Inline = sim.AllInline
	return app
}

// Like AWorkerMayDieAtAnyRequest with durable steps.
func TestCrash_AWorkerWithStepsMayDieAtAnyRequest(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, stepApps, func(t *testing.T, hub string, app sim.App) {
		killAtRequests(t, hub, app, interval(hub, 1))
	})
}

// Like AWorkerMayDieAtAnyRequest with large payloads everywhere.
func TestCrash_AWorkerWithLargePayloadsMayDieAtAnyRequest(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, largeApps, func(t *testing.T, hub string, app sim.App) {
		killAtRequests(t, hub, app, interval(hub, usual().largeEvery))
	})
}

// Any deletion may fail for some minutes, or have an unknown result.
func TestCrash_AnyDeletionMayFailForAWhile(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, largeApps, func(t *testing.T, hub string, app sim.App) {
		_, account := runWithFaults(t, hub, crashPlan(app), nil)
		deletions := len(deletionsIn(account.Log()))
		if hub == "azure" && deletions < 3 {
			t.Fatalf("the worker made only %d deletions, want at least 3", deletions)
		}
		tryAt(t, deletions, interval("azure", (usual().largeEvery+5)/6), []azsim.Fault{azsim.Throttle, azsim.FailAfter}, func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account) {
			plan := crashPlan(app)
			faults, account := runWithFaults(t, hub, plan, failDeletion(n, fault))
			return plan, faults, account
		})
	})
}

// deletionsIn returns the distinct paths that the first worker deletes.
func deletionsIn(log []azsim.Entry) (paths []string) {
	for _, e := range log {
		if e.Worker == "w0.0" && strings.HasPrefix(e.Operation, "Delete") && !slices.Contains(paths, e.Path) {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// failDeletion injects a fault into all attempts of the first worker to delete its n-th path, for three
// minutes.
func failDeletion(n int, fault azsim.Fault) func(azsim.Request) azsim.Fault {
	var mu sync.Mutex // guards the variables below
	var paths []string
	var since time.Time
	return func(r azsim.Request) azsim.Fault {
		if r.Worker != "w0.0" || !strings.HasPrefix(r.Operation, "Delete") {
			return azsim.None
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(paths, r.Path) {
			if paths = append(paths, r.Path); len(paths) == n {
				since = time.Now()
			}
		}
		if slices.Index(paths, r.Path) == n-1 && time.Since(since) < 3*time.Minute {
			return fault
		}
		return azsim.None
	}
}

// A client that purges may die before or after any of its requests. A second purge deletes the rest.
func TestCrash_APurgingClientMayDieAtAnyRequest(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, largeApps, func(t *testing.T, hub string, app sim.App) {
		plan := func() *sim.Plan {
			p := crashPlan(app)
			p.Purger = true
			return p
		}
		_, account := runWithFaults(t, hub, plan(), nil)
		requests := numberOf(account.Log(), "client purger")
		if requests < 5 {
			t.Fatalf("the client made only %d requests, want at least 5", requests)
		}
		tryAt(t, requests, interval(hub, usual().largeEvery), []azsim.Fault{azsim.KillBefore, azsim.KillAfter}, func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account) {
			plan := plan()
			faults, account := runWithFaults(t, hub, plan, atRequest("client purger", fault, n))
			return plan, faults, account
		})
	})
}

// runWithFaults runs a plan. meet injects faults into its requests; nil injects none. It returns the faults that
// the simulation found.
func runWithFaults(t *testing.T, hub string, plan *sim.Plan, meet func(azsim.Request) azsim.Fault) (faults []string, account *azsim.Account) {
	t.Helper()
	return simulateStored(t, hub, plan, meet, slog.New(slog.DiscardHandler))
}

// numberOf returns the number of a worker's requests.
func numberOf(log []azsim.Entry, worker string) (n int) {
	for _, e := range log {
		if e.Worker == worker {
			n = max(n, e.Number)
		}
	}
	return n
}

// Any request of a worker may be delivered twice, delivered again later, or delayed.
func TestCrash_AnyRequestMayBeDeliveredTwiceOrLate(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, crashApps, func(t *testing.T, hub string, app sim.App) {
		_, requests, _ := runCrash(t, hub, crashPlan(app), azsim.None, 0)
		injectAtRequests(t, hub, app, interval(hub, usual().crashEvery), requests, repeats...)
	})
}

// A worker may freeze at any request for longer than its leases and locks last.
func TestCrash_AWorkerMayFreezeAtAnyRequest(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	eachApp(t, crashApps, func(t *testing.T, hub string, app sim.App) {
		_, requests, _ := runCrash(t, hub, crashPlan(app), azsim.None, 0)
		injectAtRequests(t, hub, app, interval(hub, usual().crashEvery), requests, azsim.FreezeAfter)
	})
}

// around returns the lines of a trace around the injected fault.
func around(trace string, fault azsim.Fault) string {
	lines := strings.Split(trace, "\n")
	for i, line := range lines {
		if strings.Contains(line, fault.String()) {
			return strings.Join(lines[max(0, i-30):min(len(lines), i+60)], "\n")
		}
	}
	return fmt.Sprintf("the fault was not injected; the trace has %d lines", len(lines))
}
