package sim_test

import (
	"fmt"
	"log/slog"
	"strings"
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
				for n := 1; n <= requests; n += crashEvery {
					if faults, _, trace := runCrash(t, crashPlan(c.app), fault, n); len(faults) > 0 {
						t.Fatalf("%v request %d of %d: %s\n%s", fault, n, requests, strings.Join(faults, "\n"), around(trace, fault))
					}
				}
			}
			t.Logf("died before and after %d of %d requests", (requests+crashEvery-1)/crashEvery, requests)
		})
	}
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
