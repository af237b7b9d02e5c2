package sim

import (
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

// How long a simulation waits, in its own time, for what must happen. Patience
// begins anew with every activity that runs.
const (
	patience = 30 * time.Minute
	settling = 25 * time.Minute
	// settlingOfResult bounds how long it takes to send the result of an activity.
	settlingOfResult = 10 * time.Second
	interval         = time.Second
	// moments is for how many intervals nothing must have been on its way.
	moments = 3
	// suspension is how long instances are suspended.
	suspension = 5 * time.Second
)

// simulation is a plan as it is carried out.
type simulation struct {
	plan     *Plan
	platform Platform
	client   *durable.Client
	begin    time.Time
	cfg      durable.Config

	mu        sync.Mutex               // protects the following
	processes []Process                // those that work now, by worker; nil if there is none
	watches   []*inuse.Watch           // of all processes that there were, but those that were frozen
	working   map[Process]*inuse.Watch // of those that work now
	stops     []context.CancelFunc
	runs      []ActivityRun
	busy      map[Process]int // how many activities a process runs now
	faults    []string
	begun     int                             // operations of ledgers
	receipts  map[orderKey]map[string]Receipt // of ledgers
	bids      []*bid
	doubted   map[string][]int // of streams, the events of which an attempt failed that may have been made
	open      map[int]bool     // the workers whose process is there, or about to be
	moving    bool             // the hub is about to be copied: no worker begins
}

// Run carries a plan out and returns what was not as it must be. It must be
// called in a bubble, unless the platform can do without, and with nothing else
// under way there. Logger gets what workers log; nil means that nobody does.
func Run(ctx context.Context, plan *Plan, platform Platform, logger *slog.Logger) (faults []string) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &simulation{
		plan: plan, platform: platform, begin: time.Now(),
		processes: make([]Process, plan.Workers), stops: make([]context.CancelFunc, plan.Workers), busy: map[Process]int{}, working: map[Process]*inuse.Watch{},
		open: map[int]bool{}, doubted: map[string][]int{},
		cfg: durable.Config{
			MaxConcurrentActivities: 6, MaxConcurrentOrchestrators: 4, NoExtendedSessions: !plan.Sessions,
			ExtendedSessionIdle: 4 * time.Second, ShutdownTimeout: 2 * time.Second, EpisodeWarnAfter: time.Hour, Logger: logger,
			MaxConcurrentEntities: 4, MaxEntityBatch: plan.EntityBatch,
			UnknownFunctionTimeout: durable.DefaultUnknownFunctionTimeout, // also where no other worker can come
		},
	}
	instances, ledgers, contests, streams := instanceRun{s}, ledgerRun{s}, contestRun{s}, streamRun{s}
	s.client = durable.NewClient(platform.Client(), nil)
	work, stop := context.WithCancel(ctx)
	defer stop()
	clients := platform.Context(ctx, "client")
	// as names a caller: callers of different names take turns in an order that the seed decides.
	as := func(ctx context.Context, name string) context.Context { return platform.Context(ctx, "client "+name) }
	waiting, goAway := context.WithCancel(clients)
	defer goAway()
	var workers, waiters, others sync.WaitGroup
	for i := range plan.Workers {
		workers.Go(func() { s.live(work, i) })
	}
	for _, in := range plan.App.Instances {
		others.Go(func() { instances.drive(as(ctx, in.ID), in) })
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
				s.at(at)
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
			s.fault("in use when all have stopped: %s", what)
		}
	}
	for _, what := range platform.Pending() {
		s.fault("left behind by workers that stopped: %s", what)
	}
	for _, what := range platform.Audit() {
		s.fault("%s", what)
	}
	s.checkPurge(clients)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(s.faults, platform.Inspect(s.countedRuns())...)
}

// countedRuns returns the activities that ran for instances that nobody
// terminated or restarted. An episode of which a worker does not get to know whether it counts
// lets its activities run; if the instance was terminated before the episode could
// be run again, that was in vain. s.mu is held.
func (s *simulation) countedRuns() []ActivityRun {
	return slices.DeleteFunc(slices.Clone(s.runs), func(r ActivityRun) bool {
		return slices.ContainsFunc(s.plan.Restarts, func(again Restart) bool { return again.ID == r.InstanceID }) ||
			slices.ContainsFunc(s.plan.App.Instances, func(in Instance) bool { return in.ID == r.InstanceID && in.Terminated > 0 })
	})
}

func (s *simulation) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// at waits until the simulation is as old as d.
func (s *simulation) at(d time.Duration) {
	time.Sleep(time.Until(s.begin.Add(d)))
}

// live runs one worker, and another one whenever it has ended, until ctx ends.
func (s *simulation) live(ctx context.Context, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		if !s.mayBegin(worker) {
			pause.For(ctx, interval)
			continue
		}
		name := fmt.Sprintf("w%d.%d", worker, n)
		p, err := s.platform.Worker(name, s.plan.Skews[worker])
		if err != nil {
			s.fault("open worker %s: %v", name, err)
			return
		}
		registry := s.plan.App.Registry(s.perform(p, name), ledgerRun{s}.take(p, worker), ledgerRun{s}.receive(p))
		watch := new(inuse.Watch)
		run, stop := context.WithCancel(inuse.With(s.platform.Context(ctx, name), watch))
		if s.isIgnorant(worker) {
			registry = durable.NewRegistry()
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
		if err := <-ended; err != nil && !isDead(p) && !wasFrozen(p) && !s.wasCutShort(err) {
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

// isIgnorant reports whether a worker that begins now knows no function.
func (s *simulation) isIgnorant(worker int) bool {
	return s.plan.Ignorant != nil && s.plan.Ignorant[worker] && time.Since(s.begin) < s.plan.Quiet
}

// wasFrozen reports whether a process was frozen at some time. Nothing of what it
// does then need come to an end in time.
func wasFrozen(p Process) bool {
	_, frozen := p.FrozenSince()
	return frozen
}

// wasCutShort reports whether a worker was not done in time when it was told to
// stop, which those whose requests are slow need not be.
func (s *simulation) wasCutShort(err error) bool {
	return s.plan.Faults > 0 && strings.Contains(err.Error(), "stopped while user code goes on")
}

func isDead(p Process) bool {
	select {
	case <-p.Dead():
		return true
	default:
		return false
	}
}

// mix makes a number of a seed and a text.
func mix(seed uint64, text string) uint64 {
	h := fold(seed^0x9E3779B97F4A7C15, text)
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}

func (s *simulation) disturb(d Disturbance) {
	s.at(d.At)
	s.mu.Lock()
	p, stop := s.processes[d.Worker], s.stops[d.Worker]
	s.mu.Unlock()
	switch {
	case p == nil: // it is not there just now
	case d.Kind == KillIt:
		p.Kill()
	case d.Kind == FreezeIt:
		p.Freeze(d.For)
	case d.Kind == StopIt:
		stop()
	}
}

// perform returns the activity of a process.
func (s *simulation) perform(p Process, worker string) func(context.Context, Task) (string, error) {
	return func(ctx context.Context, t Task) (string, error) {
		if isDead(p) {
			<-ctx.Done() // a dead process does nothing
			return "", ctx.Err()
		}
		info, _ := durable.ActivityInfoFrom(ctx)
		ended := s.beginRun(p, ActivityRun{InstanceID: string(info.InstanceID), TaskID: info.TaskID, Key: t.Key, Worker: worker})
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

// beginRun notes that a process begins to run an activity, and returns what notes
// that it has ended.
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

// isBusy reports whether a process that lives runs an activity.
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

// duration is how long an activity takes. No two take the same time, so that it
// never depends on the scheduler which one ends first.
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

// awaitEnds waits until all instances that were started have ended. It resumes
// those that it finds suspended: the order in which messages arrive is not that in
// which they were sent.
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
					_ = s.client.Resume(ctx, durable.InstanceID(in.ID), "again") // it may have gone on meanwhile
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

// ranSoFar returns how many activities have run.
func (s *simulation) ranSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// awaitQuiet waits until nothing has been on its way for a moment. An activity of
// which nothing is stored, since a worker that was frozen runs it again, has a result
// that takes a while to be sent and dropped.
func (s *simulation) awaitQuiet() {
	quiet := 0
	for deadline := time.Now().Add(settling); quiet < moments; time.Sleep(interval) {
		if s.isBusy() {
			quiet = 0
			time.Sleep(settlingOfResult)
			continue
		}
		pending := s.platform.Pending()
		if quiet++; len(pending) > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			for _, what := range pending {
				s.fault("still on its way: %s", what)
			}
			return
		}
	}
}

// awaitIdle waits until nothing is in use by workers: what they took to do something was
// given back, whatever became of it.
func (s *simulation) awaitIdle() {
	for deadline := time.Now().Add(idling); ; time.Sleep(97 * time.Millisecond) { // not in step with what they do
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
				s.fault("in use though there is nothing to do: %s", strings.Join(all, ", "))
			}
			return
		}
	}
}

// returned reports whether an output is that of an orchestration that came to a sum.
func (s *simulation) returned(output string, sum uint64) bool {
	var got Output
	return json.Unmarshal([]byte(output), &got) == nil && got == s.plan.App.output(sum)
}

// cameLate reports whether an instance can be one that a request brought back which was
// delivered again after the instance was purged: its input is gone, and so it failed.
func (s *simulation) cameLate(state *durable.InstanceState) bool {
	return s.plan.Repeats > 0 && state.Status == history.Failed
}

// purgeHalf lets a client purge everything that dies meanwhile.
func (s *simulation) purgeHalf(ctx context.Context) {
	c, kill, err := s.platform.Caller(purger)
	if err != nil {
		s.fault("open client: %v", err)
		return
	}
	if s.plan.Purged > 0 {
		defer time.AfterFunc(s.plan.Purged, kill).Stop()
	}
	client := durable.NewClient(c, nil)
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // on logs the dead try for ever
	defer cancel()
	for state, err := range client.All(ctx, durable.Query{}) {
		if err == nil {
			_, _ = client.Purge(ctx, durable.InstanceID(state.Instance.InstanceID)) // it is dead at some time
		}
	}
	s.awaitQuiet()
}

// checkPurge purges everything and looks what is left.
func (s *simulation) checkPurge(ctx context.Context) {
	if s.plan.Purger {
		s.purgeHalf(ctx)
	}
	var ids []durable.InstanceID
	for state, err := range s.client.All(ctx, durable.Query{}) {
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
		s.fault("left behind by purges: %s", what)
	}
}

// cut returns after how long a caller goes away that asks for something; ok is false if
// it does not, as nobody does any more when Quiet has passed.
func (s *simulation) cut(what string) (after time.Duration, ok bool) {
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0xC07, what)))
	return time.Duration(1 + r.Int64N(int64(80*time.Millisecond))), r.Float64() < s.plan.Cuts && time.Since(s.begin) < s.plan.Quiet
}

// insist calls f until its caller is told what came of it: callers go away meanwhile, or
// get to know that it may have been done or not.
func (s *simulation) insist(ctx context.Context, what string, f func(context.Context) error) (err error) {
	ctx = s.platform.Context(ctx, "client "+what)
	for n := range 10 {
		attempt, cancel := ctx, func() {}
		if after, ok := s.cut(fmt.Sprint(what, " ", n)); ok && n < 9 { // the last has all the time it takes
			attempt, cancel = context.WithTimeout(ctx, after)
		}
		err = f(attempt)
		cancel()
		if err == nil || !s.plan.unsure() || errors.Is(err, durable.ErrInstanceEnded) || errors.Is(err, durable.ErrInstanceExists) {
			return err
		}
		if s.plan.Inside {
			pause.For(ctx, time.Duration(n)*interval) // there may be an outage
		}
	}
	return err
}

// move stops all workers, has the hub copied, and lets workers begin on the copy.
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

// stopAll tells all workers to stop, and reports whether there are any.
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

// mayBegin reports whether a worker may begin, and notes that it does.
func (s *simulation) mayBegin(worker int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moving {
		return false
	}
	s.open[worker] = true
	return true
}
