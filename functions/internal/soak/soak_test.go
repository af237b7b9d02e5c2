//go:build unix

package soak_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

var (
	storeFlag  = flag.String("soak.store", "all", "the store: file, azure, log or all")
	killsFlag  = flag.Int("soak.kills", 0, "the least number of worker processes to kill; default 3, or 1 in a short run")
	forFlag    = flag.Duration("soak.for", 0, "the least duration of the faults")
	seedFlag   = flag.Uint64("soak.seed", 1, "seed of the kills and the faults; 0 takes one from the time")
	faultsFlag = flag.String("soak.faults", "all", "the faults, separated by commas; none: only kills")
	everyFlag  = flag.Duration("soak.every", 2*time.Second, "the mean time between two kills or faults")
	stuckFlag  = flag.Duration("soak.stuck", 4*time.Minute, "the time without progress after which a soak fails")
)

// faultNames are all faults. The first row needs an account.
var faultNames = []string{
	"drop", "lose", "cut", "twice", "late", "hold", "abandon", "slow", "throttle", "outage", "delete", "vanish",
	"freeze", "hangup",
}

// TestMain runs the app if this process is a worker. It allows more parallel tests than there are processors,
// because the tests mostly wait.
func TestMain(m *testing.M) {
	if os.Getenv(traceVariable) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("6") // a number in range
	}
	code := m.Run()
	if len(table) > 0 && testing.Verbose() {
		fmt.Printf("\n%s\n", strings.Join(append([]string{heading}, table...), "\n"))
	}
	os.Exit(code)
}

// table contains a row for each soak that has ended.
var (
	table   []string
	tableMu sync.Mutex // guards table
)

const heading = "| store | seed | kills | freezes | outages, spells | faulty requests | acknowledged | in doubt | completed | signals | entity changes | activity runs | repeated | held starts | left over | verdict |\n" +
	"|---|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"

// soak is one run on one store.
type soak struct {
	*testing.T
	store   *store
	workers []*worker
	ledger  *ledger
	sky     *sky
	random  *rand.Rand // of the main goroutine
	seed    uint64
	faults  []string

	kills, freezes, spells int
	held                   int // messages of starts in doubt
	freezing               sync.WaitGroup
}

// chosenFaults returns the faults that the flag chooses.
func chosenFaults(t *testing.T) (faults []string) {
	t.Helper()
	switch *faultsFlag {
	case "all":
		return faultNames
	case "none":
		return nil
	}
	faults = strings.Split(*faultsFlag, ",")
	for _, name := range faults {
		if !slices.Contains(faultNames, name) {
			t.Fatalf("-soak.faults has %q; want some of %s", name, strings.Join(faultNames, ","))
		}
	}
	return faults
}

// newSoak starts the workers of a new hub.
func newSoak(t *testing.T, kind string, workers int) *soak {
	t.Helper()
	if *storeFlag != "all" && *storeFlag != kind {
		t.Skipf("-soak.store=%s", *storeFlag)
	}
	s := &soak{T: t, store: newStore(t, kind), ledger: newLedger(), seed: *seedFlag, faults: chosenFaults(t)}
	t.Cleanup(s.store.close)
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-soak.seed=%d; the logs of the processes are in %s", s.seed, s.store.dir)
	s.random, s.sky = rand.New(rand.NewPCG(s.seed, 0)), newSky(s.seed, s.faults)
	for n := range workers {
		w := &worker{number: n, dir: s.store.dir, env: s.store.env}
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.kill)
		s.workers = append(s.workers, w)
	}
	return s
}

// route returns a random route.
func (s *soak) route(random *rand.Rand) route {
	if s.store.outside != nil && random.IntN(3) == 0 {
		return s.store.outside
	}
	return managed{s.workers[random.IntN(len(s.workers))]}
}

// Workers are killed and frozen and their storage has faults. Every acknowledged request has its
// effect as often as the store promises, and a clean hub has nothing left over.
func TestSoak_EverythingAcknowledgedIsAppliedOnce(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			if kind != "file" { // a short run takes the store without an account
				processtest.SkipInShortRuns(t)
			}
			workers := 3
			if kind == "file" {
				workers = 2 // one of them waits for the file
			}
			t.Parallel()
			s := newSoak(t, kind, workers)
			left := -1
			var done effects
			defer func() {
				tableMu.Lock()
				defer tableMu.Unlock()
				table = append(table, s.row(done, left))
			}()
			s.endure()
			done = s.settle()
			if s.Failed() {
				return
			}
			left = s.cleanUp()
		})
	}
}

// endure runs clients and faults until all clients have seen the ends of their instances.
func (s *soak) endure() {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	over := make(chan struct{})
	const callers = 4
	ended := make(chan error, callers)
	for n := range callers {
		c := &caller{
			number: n, random: rand.New(rand.NewPCG(s.seed, uint64(10+n))), ledger: s.ledger, routes: s.route,
			hangsUp: slices.Contains(s.faults, "hangup"),
		}
		go func() { ended <- c.run(ctx, over) }()
	}
	s.storm(ctx)
	close(over)
	s.ledger.asked(true) // the calm counts as progress
	for waiting := callers; waiting > 0; {
		select {
		case err := <-ended:
			waiting--
			if err != nil {
				s.Error(err)
			}
		case <-time.After(time.Second):
			if s.ledger.quietFor() > *stuckFlag && ctx.Err() == nil {
				s.Errorf("no progress for %v; acknowledged and not completed: %v", *stuckFlag, s.ledger.open())
				s.explain(s.ledger.open())
				cancel()
			}
		}
	}
}

// explain logs the reasons why instances wait.
func (s *soak) explain(ids []string) {
	s.Helper()
	for _, id := range ids[:min(len(ids), 10)] {
		ctx, cancel := context.WithTimeout(s.Context(), attemptTimeout)
		s.Logf("%s: %s", id, s.route(s.random).why(ctx, id))
		cancel()
	}
}

// storm kills, freezes and disturbs until the flags are satisfied, and then ends all faults.
func (s *soak) storm(ctx context.Context) {
	s.Helper()
	if s.store.proxy != nil {
		s.store.proxy.SetPlan(s.sky.fate)
	}
	var events []func(context.Context)
	for name, event := range map[string]func(context.Context){"freeze": s.freeze, "outage": s.outage, "slow": s.slow, "throttle": s.throttle} {
		if slices.Contains(s.faults, name) && (s.store.proxy != nil || name == "freeze") {
			events = append(events, event)
		}
	}
	kills := *killsFlag
	if kills == 0 {
		kills = 3
		if testing.Short() {
			kills = 1
		}
	}
	for end := time.Now().Add(*forFlag); s.kills < kills || time.Now().Before(end); {
		if !pause(ctx, *everyFlag/2+time.Duration(s.random.Int64N(int64(*everyFlag)))) {
			break
		}
		if len(events) == 0 || s.random.IntN(3) > 0 {
			s.kill(ctx)
		} else {
			events[s.random.IntN(len(events))](ctx)
		}
	}
	s.freezing.Wait()
	s.sky.clear()
}

// kill kills a worker, and starts its successor at once or later.
func (s *soak) kill(ctx context.Context) {
	s.Helper()
	w := s.workers[s.random.IntN(len(s.workers))]
	w.kill()
	s.kills++
	if s.random.IntN(2) == 0 {
		pause(ctx, time.Duration(s.random.Int64N(int64(s.store.lease))))
	}
	if err := w.start(); err != nil {
		s.Error(err)
	}
}

// freeze suspends a worker for up to one and a half leases. Kills and other faults continue.
func (s *soak) freeze(context.Context) {
	w := s.workers[s.random.IntN(len(s.workers))]
	d := time.Duration(s.random.Int64N(int64(s.store.lease * 3 / 2)))
	s.freezes++
	s.freezing.Go(func() { w.freeze(d) })
}

// outage makes the account unreachable.
func (s *soak) outage(ctx context.Context) {
	s.Helper()
	s.spells++
	s.store.proxy.Stop()
	pause(ctx, time.Second+time.Duration(s.random.Int64N(int64(5*time.Second))))
	if err := s.store.proxy.Restart(); err != nil {
		s.Error(err)
	}
}

var services = []string{"blob", "queue", "table"}

// slow gives a service a steady latency of up to two thirds of a lease.
func (s *soak) slow(context.Context) {
	s.spells++
	latency := time.Duration(s.random.Int64N(int64(s.store.lease * 2 / 3)))
	s.sky.cast("slow", services[s.random.IntN(len(services))], 2*latency+5*time.Second, latency)
}

// throttle makes a service refuse most requests.
func (s *soak) throttle(context.Context) {
	s.spells++
	s.sky.cast("throttle", services[s.random.IntN(len(services))], time.Second+time.Duration(s.random.Int64N(int64(10*time.Second))), 0)
}

// runs counts the runs of each activity, which the workers have traced.
func (s *soak) runs() map[string]int {
	s.Helper()
	runs := map[string]int{}
	files, err := filepath.Glob(filepath.Join(s.store.dir, "runs-*"))
	if err != nil {
		s.Fatal(err)
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			s.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			runs[lines.Text()]++
		}
		f.Close()
	}
	return runs
}

// until calls look until it returns no problems. It fails the test if the problems stay the same
// for too long.
func (s *soak) until(what string, look func(context.Context) ([]string, error)) (left int) {
	s.Helper()
	last, since := "", time.Now()
	for {
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		problems, err := look(ctx)
		cancel()
		if err == nil && len(problems) == 0 {
			return 0
		}
		now := strings.Join(problems, "\n")
		if err == nil && now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > *stuckFlag {
			s.Errorf("%s, %d problems, %v:\n%s", what, len(problems), err, strings.Join(problems[:min(len(problems), 40)], "\n"))
			return len(problems)
		}
		pause(s.Context(), time.Second)
	}
}

// settle waits until the hub has the effects of all acknowledged requests and no message, and
// returns the figures.
func (s *soak) settle() (done effects) {
	s.Helper()
	s.until("the hub and the acknowledged requests differ", func(ctx context.Context) ([]string, error) {
		r := s.route(s.random)
		found, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		for _, id := range s.ledger.silent(found) {
			if err := r.raise(ctx, id, message{End: &ending{}}); err != nil {
				return nil, err
			}
		}
		var problems []string
		done, problems = s.ledger.judge(found, s.runs(), s.store.promise)
		return problems, nil
	})
	s.until("messages are left", func(ctx context.Context) ([]string, error) {
		n, err := s.store.messages(ctx)
		s.held = s.starts() // a worker logs a start only when it receives it again
		if err != nil || n <= s.held {
			return nil, err
		}
		return []string{fmt.Sprint(n, " messages, ", s.held, " of them of starts in doubt")}, nil
	})
	for _, w := range s.workers {
		for _, crash := range w.crashes() {
			s.Error(crash)
		}
	}
	return done
}

var receivedStart = regexp.MustCompile(`messageId=(\S+) .*instanceId=(\S+) .*eventType=ExecutionStarted`)

// starts returns the number of messages that the workers hold back because no row has their start.
// Such a start was never acknowledged. A worker discards its message after a quarter of an hour.
func (s *soak) starts() int {
	s.Helper()
	messages := map[string]bool{}
	for _, w := range s.workers {
		for _, text := range w.logs() {
			for _, found := range receivedStart.FindAllStringSubmatch(text, -1) {
				if s.ledger.neverSeen(found[2]) {
					messages[found[1]] = true
				}
			}
		}
	}
	return len(messages)
}

// cleanUp purges the hub, stops the workers and returns the number of things that are left.
func (s *soak) cleanUp() (left int) {
	s.Helper()
	left = s.until("the hub has contents after a purge", func(ctx context.Context) ([]string, error) {
		r := s.route(s.random)
		if err := r.clean(ctx); err != nil {
			return nil, err
		}
		found, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		var problems []string
		for id, i := range found.Instances {
			problems = append(problems, id+" "+i.Status)
		}
		for name := range found.Entities {
			problems = append(problems, "entity "+name)
		}
		return slices.Sorted(slices.Values(problems)), nil
	})
	left += s.until("the storage has contents after a purge", func(ctx context.Context) ([]string, error) { return s.store.remains(ctx, s.held, s.ledger.neverSeen) })
	for _, w := range s.workers {
		w.stop(s.T)
	}
	still, err := s.store.autopsy(s.Context())
	if err != nil || len(still) > 0 {
		s.Errorf("after the workers have stopped, the hub has %s, %v", strings.Join(still, "\n"), err)
	}
	return left + len(still)
}

// row returns the line of the table.
func (s *soak) row(done effects, left int) string {
	faults := map[string]int{}
	if s.store.proxy != nil {
		for fault, n := range s.store.proxy.Faults() {
			faults[fault.String()] = n
		}
		faults["waited"] = s.sky.waited()
	}
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		kinds = append(kinds, fmt.Sprint(faults[name], " ", name))
	}
	verdict := "passed"
	if s.Failed() {
		verdict = "FAILED, see " + s.store.dir
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |",
		s.store.kind, s.seed, s.kills, s.freezes, s.spells, strings.Join(kinds, ", "), s.ledger.counts["acknowledged"], s.ledger.counts["in doubt"],
		done.completed, done.signals, done.changes, done.runs, done.again, s.held, left, verdict)
}
