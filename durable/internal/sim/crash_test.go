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

// crashApps are what the crash matrix runs.
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

// largeApps are apps of which nothing fits into messages and rows.
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

// crashPlan lets one worker run an app. When it dies, another one follows. The
// hub exists and the worker has its partitions before the instance is started.
func crashPlan(app sim.App) *sim.Plan {
	app.Instances[0].At = 3 * time.Second
	return &sim.Plan{Seed: 7, App: &app, Workers: 1, Partitions: 2, Skews: []time.Duration{0}, Pace: 10 * time.Millisecond}
}

// runCrash runs a plan whose first worker meets the given fault at its n-th
// request, counted from 1, and returns what was found and how many requests that
// worker made.
func runCrash(t *testing.T, hub string, plan *sim.Plan, fault azsim.Fault, n int) (faults []string, requests int, trace string) {
	t.Helper()
	faults, account := runMeeting(t, hub, plan, atRequest("w0.0", fault, n))
	return faults, numberOf(account.Log(), "w0.0"), account.Trace()
}

// atRequest lets the n-th request of a worker meet a fault.
func atRequest(worker string, fault azsim.Fault, n int) func(azsim.Request) azsim.Fault {
	return func(r azsim.Request) azsim.Fault {
		if r.Worker == worker && r.Number == n {
			return fault
		}
		return azsim.None
	}
}

// eachApp runs a test of each app on each hub in an account.
func eachApp(t *testing.T, apps []crashApp, test func(t *testing.T, hub string, app sim.App)) {
	for _, c := range apps {
		for _, hub := range storedHubs {
			t.Run(c.name+"/"+hub, func(t *testing.T) { test(t, hub, c.app) })
		}
	}
}

// A worker that dies before or after any of its requests loses nothing, does
// nothing twice, and leaves nothing behind.
func TestCrash_AnyRequestMayBeTheLast(t *testing.T) {
	testshare.SkipShortRace(t)
	eachApp(t, crashApps, func(t *testing.T, hub string, app sim.App) {
		killAtRequests(t, hub, app, oneOf(hub, usual().crashEvery))
	})
}

// killAtRequests kills the first worker before and after every n-th request; n is every.
func killAtRequests(t *testing.T, hub string, app sim.App, every int) {
	t.Helper()
	faults, requests, _ := runCrash(t, hub, crashPlan(app), azsim.None, 0)
	if len(faults) > 0 {
		t.Fatalf("nothing goes wrong: %s", strings.Join(faults, "\n"))
	}
	meetAtRequests(t, hub, app, every, requests, azsim.KillBefore, azsim.KillAfter)
}

// meetAtRequests lets every n-th request of the first worker meet each of the faults; n is every.
func meetAtRequests(t *testing.T, hub string, app sim.App, every, requests int, faults ...azsim.Fault) {
	t.Helper()
	tryAt(t, requests, every, faults, func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account) {
		plan := crashPlan(app)
		found, account := runMeeting(t, hub, plan, atRequest("w0.0", fault, n))
		return plan, found, account
	})
}

// tryAt calls run with each fault and this process's share of the points (see pointsOf). It ends
// the test at the first failure.
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

// pointsOf returns this process's share of the numbers from 1 to n in steps of every, or only
// the number of the flag -sim.request.
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

// oneOf returns of how many requests one is the last, if it usually is so many on the hub in
// tables and queues. Partition logs make more of them, which say less: most look for mail.
func oneOf(hub string, usual int) int {
	switch {
	case *every > 0:
		return *every
	case hub == "log":
		return 8 * usual
	}
	return usual
}

// The same with payloads in every place that are too large for it.
func TestCrash_AnyRequestMayBeTheLastThoughPayloadsAreLarge(t *testing.T) {
	testshare.SkipShortRace(t)
	eachApp(t, largeApps, func(t *testing.T, hub string, app sim.App) {
		killAtRequests(t, hub, app, oneOf(hub, usual().largeEvery))
	})
}

// What is to be deleted may not be for a while, or it is not known whether it is.
func TestCrash_AnyDeletionMayFailForAWhile(t *testing.T) {
	testshare.SkipShortRace(t)
	eachApp(t, largeApps, func(t *testing.T, hub string, app sim.App) {
		_, account := runMeeting(t, hub, crashPlan(app), nil)
		deletions := len(deletionsIn(account.Log()))
		if hub == "azure" && deletions < 3 {
			t.Fatalf("the worker deleted %d times only", deletions)
		}
		tryAt(t, deletions, oneOf("azure", (usual().largeEvery+5)/6), []azsim.Fault{azsim.Throttle, azsim.FailAfter}, func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account) {
			plan := crashPlan(app)
			faults, account := runMeeting(t, hub, plan, failDeletion(n, fault))
			return plan, faults, account
		})
	})
}

// deletionsIn returns the paths of what the first worker deletes, each once.
func deletionsIn(log []azsim.Entry) (paths []string) {
	for _, e := range log {
		if e.Worker == "w0.0" && strings.HasPrefix(e.Operation, "Delete") && !slices.Contains(paths, e.Path) {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// failDeletion lets the n-th thing that the first worker deletes meet a fault for some
// minutes, however often it tries.
func failDeletion(n int, fault azsim.Fault) func(azsim.Request) azsim.Fault {
	var mu sync.Mutex // protects the following
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

// A client that purges may die before or after any of its requests: who purges again
// finds the rest.
func TestCrash_AnyRequestOfAPurgeMayBeTheLast(t *testing.T) {
	testshare.SkipShortRace(t)
	eachApp(t, largeApps, func(t *testing.T, hub string, app sim.App) {
		plan := func() *sim.Plan {
			p := crashPlan(app)
			p.Purger = true
			return p
		}
		_, account := runMeeting(t, hub, plan(), nil)
		requests := numberOf(account.Log(), "client purger")
		if requests < 5 {
			t.Fatalf("the client made %d requests only", requests)
		}
		tryAt(t, requests, oneOf(hub, usual().largeEvery), []azsim.Fault{azsim.KillBefore, azsim.KillAfter}, func(fault azsim.Fault, n int) (*sim.Plan, []string, *azsim.Account) {
			plan := plan()
			faults, account := runMeeting(t, hub, plan, atRequest("client purger", fault, n))
			return plan, faults, account
		})
	})
}

// runMeeting runs a plan of which requests meet faults, none if meet is nil, and returns
// what was found and the account.
func runMeeting(t *testing.T, hub string, plan *sim.Plan, meet func(azsim.Request) azsim.Fault) (faults []string, account *azsim.Account) {
	t.Helper()
	return simulateStored(t, hub, plan, meet, slog.New(slog.DiscardHandler))
}

// numberOf returns how many requests a worker made.
func numberOf(log []azsim.Entry, worker string) (n int) {
	for _, e := range log {
		if e.Worker == worker {
			n = max(n, e.Number)
		}
	}
	return n
}

// A request that a worker makes may be delivered twice, once more later, or late.
func TestCrash_AnyRequestMayComeTwiceOrLate(t *testing.T) {
	testshare.SkipShortRace(t)
	eachApp(t, crashApps, func(t *testing.T, hub string, app sim.App) {
		_, requests, _ := runCrash(t, hub, crashPlan(app), azsim.None, 0)
		meetAtRequests(t, hub, app, oneOf(hub, usual().crashEvery), requests, repeats...)
	})
}

// A worker may be frozen at any request for longer than it has what it works on.
func TestCrash_AnyRequestMayFreezeTheWorker(t *testing.T) {
	testshare.SkipShortRace(t)
	eachApp(t, crashApps, func(t *testing.T, hub string, app sim.App) {
		_, requests, _ := runCrash(t, hub, crashPlan(app), azsim.None, 0)
		meetAtRequests(t, hub, app, oneOf(hub, usual().crashEvery), requests, azsim.FreezeAfter)
	})
}

// around returns the lines of a trace up to where the fault is, and some after
// that.
func around(trace string, fault azsim.Fault) string {
	lines := strings.Split(trace, "\n")
	for i, line := range lines {
		if strings.Contains(line, fault.String()) {
			return strings.Join(lines[max(0, i-30):min(len(lines), i+60)], "\n")
		}
	}
	return fmt.Sprintf("%d requests, none of which met the fault", len(lines))
}
