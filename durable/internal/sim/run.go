package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// Limits in simulated time. patience restarts with every activity that runs.
const (
	patience     = 30 * time.Minute
	quietTimeout = 25 * time.Minute
	// resultTime limits the time to send the result of an activity.
	resultTime = 10 * time.Second
	interval   = time.Second
	// quietIntervals is the number of consecutive intervals without pending messages.
	quietIntervals = 3
	// suspension is the duration of a suspension.
	suspension = 5 * time.Second
)

// simulation is the execution of a plan.
type simulation struct {
	plan     *Plan
	platform Platform
	client   *durable.Client
	begin    time.Time
	cfg      durable.Config

	mu         sync.Mutex               // guards the fields below
	processes  []Process                // running processes by worker; nil if the worker is down
	watches    []*inuse.Watch           // of all processes that ended without having been frozen
	working    map[Process]*inuse.Watch // of running processes
	stops      []context.CancelFunc
	runs       []ActivityRun
	busy       map[Process]int // number of running activities by process
	faults     []string
	operations int                             // number of started ledger operations
	receipts   map[orderKey]map[string]Receipt // of ledgers, by order and ledger
	bids       []*bid
	steps      stepRuns
	uncertain  map[string][]int // by stream, the events with a failed attempt that may have been stored
	open       map[int]bool     // workers with a process, or about to start one
	moving     bool             // the hub is about to be copied; no worker may start
}

// Run executes a plan and returns the faults that it found. It must be called in a synctest bubble without
// other activity, unless the platform works without one. The workers log to logger; nil discards their logs.
func Run(ctx context.Context, plan *Plan, platform Platform, logger *slog.Logger) (faults []string) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &simulation{
		plan: plan, platform: platform, begin: time.Now(),
		processes: make([]Process, plan.Workers), stops: make([]context.CancelFunc, plan.Workers), busy: map[Process]int{}, working: map[Process]*inuse.Watch{},
		open: map[int]bool{}, uncertain: map[string][]int{},
		cfg: durable.Config{
			MaxConcurrentActivities: cmp.Or(plan.Activities, 6), MaxConcurrentOrchestrators: 4,
			ExtendedSessionIdle: 4 * time.Second, ShutdownTimeout: 2 * time.Second, EpisodeWarnAfter: time.Hour, Logger: logger,
			MaxConcurrentEntities: 4, MaxEntityBatch: plan.EntityBatch,
			UnknownFunctionTimeout: durable.DefaultUnknownFunctionTimeout, // also on platforms with a single worker
		},
	}
	if !plan.Sessions {
		s.cfg.ExtendedSessionIdle = -1
	}
	instances, ledgers, contests, streams := instanceRun{s}, ledgerRun{s}, contestRun{s}, streamRun{s}
	s.client = durable.NewClient(platform.Client(), nil)
	work, stop := context.WithCancel(ctx)
	defer stop()
	clients := platform.Context(ctx, "client")
	// as returns the context of a named client. The seed determines the order in which clients with different
	// names run.
	as := func(ctx context.Context, name string) context.Context { return platform.Context(ctx, "client "+name) }
	waiting, goAway := context.WithCancel(clients)
	defer goAway()
	var workers, waiters, others sync.WaitGroup
	for i := range plan.Workers {
		workers.Go(func() { s.runWorker(work, i) })
	}
	for _, in := range plan.App.Instances {
		others.Go(func() { instances.runClients(as(ctx, in.ID), in) })
	}
	if plan.Awaited {
		for _, in := range plan.App.Instances {
			waiters.Go(func() { instances.await(as(waiting, "awaits "+in.ID), in.ID) })
		}
	}
	for i, c := range plan.App.Signals {
		others.Go(func() { ledgers.signal(as(ctx, fmt.Sprint("signals ", i)), c) })
	}
	for _, c := range plan.Contests {
		others.Go(func() { contests.contest(as(ctx, c.ID), c) })
	}
	for _, r := range plan.Restarts {
		others.Go(func() { instances.restart(as(ctx, "restarts "+r.ID), r) })
	}
	for _, st := range plan.Streams {
		others.Go(func() { streams.stream(as(ctx, st.ID), st) })
	}
	for _, d := range plan.Disturbances {
		others.Go(func() { s.disturb(d) })
	}
	if plan.Asked != nil {
		waiters.Go(func() { newWhyRun(s).ask(as(waiting, "asks why")) })
	}
	if len(plan.Moves) > 0 {
		others.Go(func() {
			for _, at := range plan.Moves {
				s.sleepUntil(at)
				s.move(ctx, platform.(Mover))
			}
		})
	}
	if ledgers.orphans() {
		workers.Go(func() { ledgers.keepFreeingOrphans(work, as(ctx, "frees orphans")) })
	}
	others.Wait()
	s.awaitEnds(clients)
	instances.checkRestarts(clients)
	s.awaitQuiet()
	ledgers.settleLedgers(clients)
	goAway()
	waiters.Wait()
	s.awaitIdle()
	instances.checkEnds(clients)
	ledgers.checkLedgers(clients)
	contests.checkContests(clients)
	streams.checkStreams(clients)
	stop()
	workers.Wait()
	platform.Settle()
	for _, watch := range s.watches {
		for _, what := range watch.All() {
			s.fault("still in use after all workers have stopped: %s", what)
		}
	}
	for _, what := range platform.Pending() {
		s.fault("message left behind by stopped workers: %s", what)
	}
	for _, what := range platform.Audit() {
		s.fault("%s", what)
	}
	s.checkPurge(clients)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(s.faults, platform.Inspect(s.countedRuns())...)
}

// countedRuns returns the activity runs of instances that were neither terminated nor restarted. A worker
// runs the activities of an episode even if it does not know whether its commit succeeded. If the instance is
// terminated before the episode is repeated, these runs belong to no history. s.mu must be held.
func (s *simulation) countedRuns() []ActivityRun {
	return slices.DeleteFunc(slices.Clone(s.runs), func(r ActivityRun) bool {
		return r.IsStep || slices.ContainsFunc(s.plan.Restarts, func(again Restart) bool { return again.ID == r.InstanceID }) ||
			slices.ContainsFunc(s.plan.App.Instances, func(in Instance) bool { return in.ID == r.InstanceID && in.Terminated > 0 })
	})
}

func (s *simulation) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// sleepUntil sleeps until the simulation has run for d.
func (s *simulation) sleepUntil(d time.Duration) {
	time.Sleep(time.Until(s.begin.Add(d)))
}

// runWorker runs a worker and replaces it by a new process whenever it ends, until ctx ends.
func (s *simulation) runWorker(ctx context.Context, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		if !s.tryStart(worker) {
			pause.For(ctx, interval)
			continue
		}
		name := fmt.Sprintf("w%d.%d", worker, n)
		p, err := s.platform.Worker(name, s.plan.Skews[worker])
		if err != nil {
			s.fault("open worker %s: %v", name, err)
			return
		}
		app := s.plan.App
		if s.isNow(s.plan.Foreign, worker) {
			app = app.inForeignCode()
		}
		registry := app.Registry(s.perform(p, name, s.plan.Skews[worker]), ledgerRun{s}.operationTime(p, worker), ledgerRun{s}.receiptRecorder(p))
		watch := new(inuse.Watch)
		run, stop := context.WithCancel(inuse.With(s.platform.Context(ctx, name), watch))
		if s.isNow(s.plan.Ignorant, worker) {
			registry = durable.NewRegistry()
		}
		if s.isNow(s.plan.Ignorant, worker) || s.isNow(s.plan.Foreign, worker) {
			run, stop = context.WithDeadline(run, s.begin.Add(s.plan.Quiet))
		}
		s.mu.Lock()
		s.processes[worker], s.stops[worker] = p, stop
		s.working[p] = watch
		s.mu.Unlock()
		ended := make(chan error, 1)
		go func() {
			w := durable.NewWorker(p, registry, s.cfg)
			ended <- w.Run(run)
		}()
		select {
		case <-p.Dead():
		case err = <-ended:
			ended <- err
		}
		stop()
		if err := <-ended; err != nil && !isDead(p) && !wasFrozen(p) && !s.exceededShutdown(err) {
			s.fault("worker %s: %v", name, err)
		}
		s.mu.Lock()
		s.processes[worker], s.stops[worker] = nil, nil
		delete(s.working, p)
		if !wasFrozen(p) {
			s.watches = append(s.watches, watch)
		}
		delete(s.open, worker)
		s.mu.Unlock()
		pause.For(ctx, time.Duration(1+mix(s.plan.Seed, name)%20)*time.Second)
	}
}

// isNow reports whether a property that workers have until Quiet has passed applies to a worker that starts now.
func (s *simulation) isNow(property []bool, worker int) bool {
	return property != nil && property[worker] && time.Since(s.begin) < s.plan.Quiet
}

// wasFrozen reports whether a process was ever frozen. Its work need not complete in time.
func wasFrozen(p Process) bool {
	_, frozen := p.FrozenSince()
	return frozen
}

// exceededShutdown reports whether a worker exceeded its shutdown timeout, which is allowed if its requests are
// slow.
func (s *simulation) exceededShutdown(err error) bool {
	return s.plan.Faults > 0 && strings.Contains(err.Error(), "user code ignored context cancellation")
}

func isDead(p Process) bool {
	select {
	case <-p.Dead():
		return true
	default:
		return false
	}
}

// mix hashes a seed and a text.
func mix(seed uint64, text string) uint64 {
	h := fold(seed^0x9E3779B97F4A7C15, text)
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}

func (s *simulation) disturb(d Disturbance) {
	s.sleepUntil(d.At)
	s.mu.Lock()
	p, stop := s.processes[d.Worker], s.stops[d.Worker]
	s.mu.Unlock()
	switch {
	case p == nil: // the worker is down
	case d.Kind == KillIt:
		p.Kill()
	case d.Kind == FreezeIt:
		p.Freeze(d.For)
	case d.Kind == StopIt:
		stop()
	}
}

// perform returns the activity function for a process whose clock is ahead by skew.
func (s *simulation) perform(p Process, worker string, skew time.Duration) func(context.Context, Task, inlineKind) (string, error) {
	return func(ctx context.Context, t Task, kind inlineKind) (string, error) {
		if isDead(p) {
			<-ctx.Done() // a dead process does nothing
			return "", ctx.Err()
		}
		info, _ := durable.ActivityInfoFrom(ctx)
		if kind != asActivity {
			status, err := s.platform.Status(string(info.InstanceID))
			s.mu.Lock()
			s.faults = append(s.faults, s.steps.check(t, kind, info, skew, err == nil && status.IsTerminal(), wasFrozen(p))...)
			s.mu.Unlock()
		}
		ended := s.beginRun(p, ActivityRun{InstanceID: string(info.InstanceID), TaskID: info.TaskID, Key: t.Key, Worker: worker, IsStep: kind != asActivity})
		pause.For(ctx, s.duration(t))
		ended()
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case t.Fails:
			return "", fmt.Errorf("task %s fails%s", t.Key, t.Big)
		}
		return t.Result(), nil
	}
}

// beginRun records the start of an activity run. The caller calls ended to record its end.
func (s *simulation) beginRun(p Process, run ActivityRun) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.At = time.Since(s.begin)
	n := len(s.runs)
	s.runs = append(s.runs, run)
	s.busy[p]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[p]--
		until := time.Since(s.begin)
		if at, ok := p.FrozenSince(); ok {
			until = min(until, at.Sub(s.begin))
		}
		s.runs[n].Until = until
	}
}

// isBusy reports whether a live process is running an activity.
func (s *simulation) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, n := range s.busy {
		if n > 0 && !isDead(p) {
			return true
		}
	}
	return false
}

// duration returns how long an activity takes. All durations differ, so that the order of completion never
// depends on the scheduler.
func (s *simulation) duration(t Task) time.Duration {
	h := mix(s.plan.Seed, t.Key)
	odd := time.Duration(h >> 32 % uint64(time.Millisecond))
	if s.plan.Pace > 0 {
		return s.plan.Pace + odd
	}
	d := time.Duration(h>>8%1500)*time.Millisecond + odd
	if h%40 == 0 {
		d += 35 * time.Second
	}
	return d
}

// awaitEnds waits until all started instances have ended. It resumes suspended instances, because a Resume
// may have overtaken its Suspend.
func (s *simulation) awaitEnds(ctx context.Context) {
	ran, deadline := 0, time.Now().Add(patience)
	for {
		if n := s.ranSoFar(); n > ran {
			ran, deadline = n, time.Now().Add(patience)
		}
		open := 0
		last := ""
		for _, in := range s.plan.App.Instances {
			status, err := s.platform.Status(in.ID)
			if err != nil {
				s.fault("status of %s: %v", in.ID, err)
				return
			}
			if !status.IsTerminal() {
				open, last = open+1, fmt.Sprintf("%s is %v", in.ID, status)
				if status == history.Suspended && time.Since(s.begin) > in.Suspended+suspension+interval {
					_ = s.client.Resume(ctx, durable.InstanceID(in.ID), "again") // the instance may have resumed meanwhile
				}
			}
		}
		switch {
		case open == 0:
			return
		case time.Now().After(deadline):
			s.fault("%d instances have not ended, %s", open, last)
			return
		}
		time.Sleep(interval)
	}
}

// ranSoFar returns the number of activity runs.
func (s *simulation) ranSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// awaitQuiet waits until no message is pending for several intervals. A frozen worker may still run an
// activity that is stored nowhere. awaitQuiet waits until its result has been sent and discarded.
func (s *simulation) awaitQuiet() {
	quiet := 0
	for deadline := time.Now().Add(quietTimeout); quiet < quietIntervals; time.Sleep(interval) {
		if s.isBusy() {
			quiet = 0
			time.Sleep(resultTime)
			continue
		}
		pending := s.platform.Pending()
		if quiet++; len(pending) > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			for _, what := range pending {
				s.fault("still pending: %s", what)
			}
			return
		}
	}
}

// awaitIdle waits until workers have released all resources that they acquired for their work.
func (s *simulation) awaitIdle() {
	for deadline := time.Now().Add(idleTimeout); ; time.Sleep(97 * time.Millisecond) { // not synchronized with the workers' own intervals
		left := map[Process][]string{}
		s.mu.Lock()
		for p, watch := range s.working {
			if all := watch.All(); len(all) > 0 && !isDead(p) {
				left[p] = all
			}
		}
		s.mu.Unlock()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, all := range left {
				s.fault("still in use although the hub is idle: %s", strings.Join(all, ", "))
			}
			return
		}
	}
}

// returned reports whether output is the output of an orchestration with this sum.
func (s *simulation) returned(output string, sum uint64) bool {
	var got Output
	return json.Unmarshal([]byte(output), &got) == nil && got == s.plan.App.output(sum)
}

// isRecreated reports whether a request that was repeated after the purge of the instance may have created the
// instance again. Its input is gone, and so it failed.
func (s *simulation) isRecreated(state *durable.InstanceState) bool {
	return s.plan.Repeats > 0 && state.Status == history.Failed
}

// purgeAndCrash runs a client that purges all instances and crashes during the purge.
func (s *simulation) purgeAndCrash(ctx context.Context) {
	c, kill, err := s.platform.Caller(purger)
	if err != nil {
		s.fault("open client: %v", err)
		return
	}
	if s.plan.Purged > 0 {
		defer time.AfterFunc(s.plan.Purged, kill).Stop()
	}
	client := durable.NewClient(c, nil)
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // on partition logs, a dead client retries forever
	defer cancel()
	for state, err := range client.AllInstances(ctx, durable.Query{}) {
		if err == nil {
			_, _ = client.Purge(ctx, durable.InstanceID(state.Instance.InstanceID)) // fails after the crash
		}
	}
	s.awaitQuiet()
}

// checkPurge purges all instances and reports what is left.
func (s *simulation) checkPurge(ctx context.Context) {
	if s.plan.Purger {
		s.purgeAndCrash(ctx)
	}
	var ids []durable.InstanceID
	for state, err := range s.client.AllInstances(ctx, durable.Query{}) {
		if err != nil {
			s.fault("list instances: %v", err)
			return
		}
		ids = append(ids, durable.InstanceID(state.Instance.InstanceID))
	}
	for _, id := range ids {
		if _, err := s.client.Purge(ctx, id); err != nil {
			s.fault("purge %s: %v", id, err)
		}
	}
	for _, what := range append(s.platform.Stored(), s.platform.Pending()...) {
		s.fault("left after the purge: %s", what)
	}
}

// cut returns when a caller gives up a call; ok is false if it does not. No caller gives up after Quiet.
func (s *simulation) cut(what string) (after time.Duration, ok bool) {
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0xC07, what)))
	return time.Duration(1 + r.Int64N(int64(80*time.Millisecond))), r.Float64() < s.plan.Cuts && time.Since(s.begin) < s.plan.Quiet
}

// retryUntilClear calls f until it has a definite result, at most 10 times. It retries calls that the caller
// gave up and calls with an unknown result.
func (s *simulation) retryUntilClear(ctx context.Context, what string, f func(context.Context) error) (err error) {
	ctx = s.platform.Context(ctx, "client "+what)
	for n := range 10 {
		attempt, cancel := ctx, func() {}
		if after, ok := s.cut(fmt.Sprint(what, " ", n)); ok && n < 9 { // the last attempt has no time limit
			attempt, cancel = context.WithTimeout(ctx, after)
		}
		err = f(attempt)
		cancel()
		if err == nil || !s.plan.clientsMayFail() || errors.Is(err, durable.ErrInstanceEnded) || errors.Is(err, durable.ErrInstanceExists) {
			return err
		}
		if s.plan.Inside {
			pause.For(ctx, time.Duration(n)*interval) // lets an outage pass
		}
	}
	return err
}

// move stops all workers, copies the hub and lets workers start on the copy.
func (s *simulation) move(ctx context.Context, m Mover) {
	s.mu.Lock()
	s.moving = true
	s.mu.Unlock()
	for s.stopAll() {
		pause.For(ctx, interval)
	}
	for _, what := range m.Move(ctx) {
		s.fault("copy: %s", what)
	}
	s.mu.Lock()
	s.moving = false
	s.mu.Unlock()
}

// stopAll stops all workers. It reports whether there are any.
func (s *simulation) stopAll() (any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for worker := range s.open {
		if any = true; s.stops[worker] != nil {
			s.stops[worker]()
		}
	}
	return any
}

// tryStart reports whether a worker may start, and records the start.
func (s *simulation) tryStart(worker int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moving {
		return false
	}
	s.open[worker] = true
	return true
}
