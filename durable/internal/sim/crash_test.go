package sim_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
)

// crashApps are what the crash matrix runs.
var crashApps = []struct {
	name string
	app  sim.App
}{
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
var largeApps = []struct {
	name string
	app  sim.App
}{
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
func runCrash(t *testing.T, plan *sim.Plan, fault azsim.Fault, n int) (faults []string, requests int, trace string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		decide := func(r azsim.Request) azsim.Fault {
			if r.Worker == "w0.0" && r.Number == n {
				return fault
			}
			return azsim.None
		}
		a, err := newAzure(plan, decide, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		faults = sim.Run(t.Context(), plan, a, nil)
		a.account.Wait()
		for _, e := range a.account.Log() {
			if e.Worker == "w0.0" {
				requests = max(requests, e.Number)
			}
		}
		trace = a.account.Trace()
	})
	return faults, requests, trace
}

// A worker that dies before or after any of its requests loses nothing, does
// nothing twice, and leaves nothing behind.
func TestCrash_AnyRequestMayBeTheLast(t *testing.T) {
	for _, c := range crashApps {
		t.Run(c.name, func(t *testing.T) {
			_, requests, _ := runCrash(t, crashPlan(c.app), azsim.None, 0)
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
				for n := 1; n <= requests; n += oneOf(crashEvery) {
					if faults, _, trace := runCrash(t, crashPlan(c.app), fault, n); len(faults) > 0 {
						t.Fatalf("%v request %d of %d: %s\n%s", fault, n, requests, strings.Join(faults, "\n"), around(trace, fault))
					}
				}
			}
			t.Logf("died before and after %d of %d requests", (requests+oneOf(crashEvery)-1)/oneOf(crashEvery), requests)
		})
	}
}

// oneOf returns of how many requests one is the last, if it usually is so many.
func oneOf(usual int) int {
	if *every > 0 {
		return *every
	}
	return usual
}

// The same with payloads in every place that are too large for it.
func TestCrash_AnyRequestMayBeTheLastThoughPayloadsAreLarge(t *testing.T) {
	for _, c := range largeApps {
		t.Run(c.name, func(t *testing.T) {
			faults, log := runMeeting(t, crashPlan(c.app), nil)
			if len(faults) > 0 {
				t.Fatalf("nothing goes wrong: %s", strings.Join(faults, "\n"))
			}
			requests := numberOf(log, "w0.0")
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
				for n := 1; n <= requests; n += oneOf(largeEvery) {
					if faults, _, trace := runCrash(t, crashPlan(c.app), fault, n); len(faults) > 0 {
						t.Fatalf("%v request %d of %d: %s\n%s", fault, n, requests, strings.Join(faults, "\n"), around(trace, fault))
					}
				}
			}
		})
	}
}

// What is to be deleted may not be for a while, or it is not known whether it is.
func TestCrash_AnyDeletionMayFailForAWhile(t *testing.T) {
	for _, c := range largeApps {
		t.Run(c.name, func(t *testing.T) {
			_, log := runMeeting(t, crashPlan(c.app), nil)
			deletions := len(deletionsIn(log))
			if deletions < 3 {
				t.Fatalf("the worker deleted %d times only", deletions)
			}
			for _, fault := range []azsim.Fault{azsim.Throttle, azsim.FailAfter} {
				for n := 1; n <= deletions; n += oneOf((largeEvery + 5) / 6) {
					meet := func() func(azsim.Request) azsim.Fault { return failDeletion(n, fault) }
					if faults, _ := runMeeting(t, crashPlan(c.app), meet); len(faults) > 0 {
						t.Fatalf("%v deletion %d of %d: %s", fault, n, deletions, strings.Join(faults, "\n"))
					}
				}
			}
		})
	}
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
	for _, c := range largeApps {
		t.Run(c.name, func(t *testing.T) {
			plan := func() *sim.Plan {
				p := crashPlan(c.app)
				p.Purger = true
				return p
			}
			_, log := runMeeting(t, plan(), nil)
			requests := numberOf(log, "client purger")
			if requests < 5 {
				t.Fatalf("the client made %d requests only", requests)
			}
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
				for n := 1; n <= requests; n += oneOf(largeEvery) {
					meet := func() func(azsim.Request) azsim.Fault {
						return func(r azsim.Request) azsim.Fault {
							if r.Worker == "client purger" && r.Number == n {
								return fault
							}
							return azsim.None
						}
					}
					if faults, _ := runMeeting(t, plan(), meet); len(faults) > 0 {
						t.Fatalf("%v request %d of %d: %s", fault, n, requests, strings.Join(faults, "\n"))
					}
				}
			}
		})
	}
}

// runMeeting runs a plan of which requests meet faults, none if meet is nil, and returns
// what was found and all requests.
func runMeeting(t *testing.T, plan *sim.Plan, meet func() func(azsim.Request) azsim.Fault) (faults []string, log []azsim.Entry) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var decide func(azsim.Request) azsim.Fault
		if meet != nil {
			decide = meet()
		}
		a, err := newAzure(plan, decide, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		faults = sim.Run(t.Context(), plan, a, nil)
		a.account.Wait()
		log = a.account.Log()
	})
	return faults, log
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
	for _, c := range crashApps {
		t.Run(c.name, func(t *testing.T) {
			_, requests, _ := runCrash(t, crashPlan(c.app), azsim.None, 0)
			for _, fault := range repeats {
				for n := 1; n <= requests; n += crashEvery {
					if faults, _, trace := runCrash(t, crashPlan(c.app), fault, n); len(faults) > 0 {
						t.Errorf("%v, request %d of %d: %s\n%s", fault, n, requests, strings.Join(faults, "\n"), around(trace, fault))
					}
				}
			}
		})
	}
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
