package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "the first seed to simulate")
	runs      = flag.Int("sim.runs", 0, "number of seeds to simulate; 0 means the usual number")
	stopAfter = flag.Int("sim.stop", 10, "number of failed seeds after which a test stops")
	every     = flag.Int("sim.every", 0, "inject a fault at every n-th request in crash tests; 0 means the usual number")
	request   = flag.Int("sim.request", 0, "the only request at which crash tests inject faults; 0 means no such limit")
	verbose   = flag.Bool("sim.log", false, "print the workers' logs and the trace")
)

// TestMain runs simulations on one processor. On several processors, a seed is not deterministic: goroutines
// that are ready at the same instant run in any order.
func TestMain(m *testing.M) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	debug.SetTraceback("all") // of all goroutines: some have the label of repeatable
	if err := os.Setenv("GODEBUG", os.Getenv("GODEBUG")+",tracebacklabels=1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// inBubble calls f in a synctest bubble. All random identifiers in it depend on the seed.
func inBubble(t *testing.T, seed uint64, f func(t *testing.T)) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, f)
}

// simulate runs a plan on a hub. It returns the faults and a function that returns the trace, which is empty
// for hubs without an account.
func simulate(t *testing.T, plan *sim.Plan, provider string) (faults []string, trace func() string) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	if *verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if provider == "moving" {
		return simulateMoved(t, plan, logger), func() string { return "" }
	}
	if provider == "embedded" {
		return simulateEmbedded(t, plan, logger), func() string { return "" }
	}
	faults, account := simulateStored(t, provider, plan, nil, logger)
	return faults, account.Trace
}

// simulateStored is simulate for hubs in a storage account. decide injects faults into requests; nil means
// the faults of the plan.
func simulateStored(t *testing.T, provider string, plan *sim.Plan, decide func(azsim.Request) azsim.Fault, logger *slog.Logger) (faults []string, account *azsim.Account) {
	t.Helper()
	inBubble(t, plan.Seed, func(t *testing.T) {
		p, err := newStored(provider, plan, decide, logger)
		if err != nil {
			t.Fatal(err)
		}
		faults = sim.Run(t.Context(), plan, p, logger)
		p.close()
		account = p.storage()
	})
	return faults, account
}

// simulateEmbedded is simulate for a hub in a local file, which has one worker.
func simulateEmbedded(t *testing.T, plan *sim.Plan, logger *slog.Logger) (faults []string) {
	t.Helper()
	dir := t.TempDir()
	plan.Workers = 1
	for i := range plan.Disturbances {
		plan.Disturbances[i].Worker = 0
	}
	inBubble(t, plan.Seed, func(t *testing.T) {
		l, err := newLocal(plan, dir, logger)
		if err != nil {
			t.Fatal(err)
		}
		faults = sim.Run(t.Context(), plan, l, logger)
		if err := l.close(); err != nil {
			faults = append(faults, err.Error())
		}
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	return faults
}

// simulations lists the plans and their hubs: azure, embedded, log, or moving, which copies the hub between
// the others.
var simulations = []struct {
	name   string
	planOf func(seed uint64) *sim.Plan
	hubs   []string
}{
	{"varied", sim.NewVariedPlan, allHubs},
	{"repeated", sim.NewRepeatedPlan, storedHubs},
	{"strange", sim.NewStrangePlan, storedHubs},
	{"audited", sim.NewAuditedPlan, allHubs[:1]}, // the other hubs have no tracking
	{"large", sim.NewLargePlan, allHubs},
	{"ending", sim.NewEndingPlan, allHubs},
	{"callers", sim.NewCallerPlan, allHubs},
	{"restarts", sim.NewRestartPlan, allHubs},
	{"streams", sim.NewStreamPlan, allHubs},
	{"entities", sim.NewEntityPlan, allHubs},
	{"repeatedentities", sim.NewRepeatedEntityPlan, storedHubs},
	{"signalers", sim.NewSignalerPlan, allHubs},
	{"insiders", sim.NewInsiderPlan, storedHubs},
	{"steps", sim.NewStepPlan, allHubs},
	{"polls", sim.NewPollPlan, allHubs},
	{"takeovers", sim.NewTakeoverPlan, allHubs},
	{"moved", sim.NewMovedPlan, []string{"moving"}},
}

// To run many seeds of one plan on one hub, use -run TestSim_AppsEndAsTheOracleSays/callers/azure -sim.seed=1
// -sim.runs=1000.
func TestSim_AppsEndAsTheOracleSays(t *testing.T) {
	for i, s := range simulations {
		for j, hub := range s.hubs {
			t.Run(s.name+"/"+hub, func(t *testing.T) {
				if *runs == 0 && usual().oneHub && j != i%len(s.hubs) {
					testshare.SkipInShortRaceRuns(t)
				}
				simulateMany(t, hub, s.planOf, cmp.Or(*runs, usualRuns(s.name, hub)))
			})
		}
	}
}

// usualRuns returns the number of seeds of a plan on a hub unless a flag overrides it.
func usualRuns(plan, hub string) int {
	n := usual().runs
	if plan == "large" {
		n = usual().largeRuns
	}
	if hub == "log" {
		n = min(n, usual().logRuns)
	}
	return n
}

// simulateMany runs n seeds of a plan, or this process's share of them.
func simulateMany(t *testing.T, provider string, planOf func(seed uint64) *sim.Plan, n int) {
	begin := time.Now()
	done, failed := 0, 0
	for i := range n {
		if !testshare.Has(t, i) {
			continue
		}
		seed := *firstSeed + uint64(i)
		flags := fmt.Sprintf("-sim.seed=%d -sim.runs=1", seed)
		var faults []string
		var trace func() string
		repeatable(t, flags, func() { faults, trace = simulate(t, planOf(seed), provider) })
		if *verbose {
			fmt.Fprint(os.Stderr, trace())
		}
		done++
		if len(faults) > 0 {
			report(t, planOf(seed), faults, trace(), flags)
			if failed++; failed == *stopAfter {
				t.Fatalf("%d of %d seeds failed; skipping the rest", failed, done)
			}
		}
		if done%1000 == 0 {
			t.Logf("%d seeds on %s so far, in %v", done, provider, time.Since(begin).Round(time.Second))
		}
	}
	t.Logf("%d seeds on %s in %v", done, provider, time.Since(begin).Round(time.Millisecond))
}

// Several runs of a simulation must make the same requests to the account.
func TestSim_ASeedDeterminesAllRequests(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	for _, c := range crashApps {
		t.Run(c.name, func(t *testing.T) {
			testshare.SkipOtherShares(t)
			var first []string
			for n := range usual().repetitions {
				_, _, trace := runCrash(t, "azure", crashPlan(c.app), azsim.KillAfter, 30)
				lines := strings.Split(trace, "\n")
				if n == 0 {
					first = lines
				}
				if difference := firstDifference(first, lines); difference != "" {
					t.Fatalf("run %d: %s", n, difference)
				}
			}
		})
	}
}

// Seeds of the varied plan make the same requests in each run. On logs, 2 of 300 seeds do not: two callers can
// receive one answer at the same instant. On Azure queues and tables, about 4 of 100 seeds of other plans do not:
// two messages can arrive at the same instant. The scheduler then decides the order. With -sim.runs the test
// compares seeds of all plans.
func TestSim_ARandomSeedDeterminesAllRequests(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	for _, hub := range storedHubs {
		for _, s := range simulations {
			if !slices.Contains(s.hubs, hub) || *runs == 0 && s.name != "varied" {
				continue
			}
			t.Run(s.name+"/"+hub, func(t *testing.T) {
				for i := range cmp.Or(*runs, usual().repeatedSeeds) {
					if testshare.Has(t, i) {
						repeatSeed(t, hub, s.planOf, *firstSeed+uint64(i))
					}
				}
			})
		}
	}
}

// Two runs of these seeds differed before direct requests took turns (72) and the oracle's reads had a seeded
// source of random numbers (36). Seed 1 differed before a partition's first poll served the start of dispatching
// and the removal of idle clients.
func TestSim_SeedsThatDifferedOnLogsRepeat(t *testing.T) {
	testshare.SkipInShortRaceRuns(t)
	testshare.SkipOtherShares(t)
	for _, seed := range []uint64{36, 72, 72, 72, 1, 1, 1} { // seed 72 differed in 23 of 40 runs, seed 1 in 12 of 45
		repeatSeed(t, "log", sim.NewVariedPlan, seed)
	}
}

func repeatSeed(t *testing.T, hub string, planOf func(seed uint64) *sim.Plan, seed uint64) {
	t.Helper()
	run := func() []string {
		_, trace := simulate(t, planOf(seed), hub)
		return strings.Split(trace(), "\n")
	}
	first, second := run(), run()
	if difference := firstDifference(first, second); difference != "" {
		plan := planOf(seed)
		kept := keepTrace(t, plan, nil, strings.Join(first, "\n"))
		report(t, plan, []string{difference, "the first trace: " + kept}, strings.Join(second, "\n"), fmt.Sprintf("-sim.seed=%d -sim.runs=1", seed))
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("request %d is first\n%s\nand then\n%s", i, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d requests and then %d", len(a), len(b))
	}
	return ""
}
