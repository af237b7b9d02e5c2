package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
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
	open      map[int]bool // the workers whose process is there, or about to be
	moving    bool         // the hub is about to be copied: no worker begins
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
		open: map[int]bool{},
		cfg: durable.Config{
			MaxConcurrentActivities: 6, MaxConcurrentOrchestrators: 4, ExtendedSessions: plan.Sessions,
			ExtendedSessionIdle: 4 * time.Second, ShutdownTimeout: 2 * time.Second, EpisodeWarnAfter: time.Hour, Logger: logger,
			MaxConcurrentEntities: 4, MaxEntityBatch: plan.EntityBatch,
			UnknownFunctionTimeout: durable.DefaultUnknownFunctionTimeout, // also where no other worker can come
		},
	}
	s.client = durable.NewClient(platform.Client(), nil)
	work, stop := context.WithCancel(ctx)
	defer stop()
	waiting, goAway := context.WithCancel(ctx)
	defer goAway()
	var workers, waiters, others sync.WaitGroup
	for i := range plan.Workers {
		workers.Go(func() { s.live(work, i) })
	}
	clients := platform.Context(ctx, "client")
	for _, in := range plan.App.Instances {
		others.Go(func() { s.drive(clients, in) })
	}
	if plan.Awaited {
		for _, in := range plan.App.Instances {
			waiters.Go(func() { s.await(waiting, in.ID) })
		}
	}
	for _, c := range plan.App.Signals {
		others.Go(func() { s.signal(clients, c) })
	}
	for _, c := range plan.Contests {
		others.Go(func() { s.contest(clients, c) })
	}
	for _, r := range plan.Restarts {
		others.Go(func() { s.restart(clients, r) })
	}
	for _, st := range plan.Streams {
		others.Go(func() { s.stream(clients, st) })
	}
	for _, d := range plan.Disturbances {
		others.Go(func() { s.disturb(d) })
	}
	if len(plan.Moves) > 0 {
		others.Go(func() {
			for _, at := range plan.Moves {
				s.at(at)
				s.move(ctx, platform.(Mover))
			}
		})
	}
	if s.orphans() {
		workers.Go(func() { s.keepFreeingOrphans(work, clients) })
	}
	others.Wait()
	s.awaitEnds(clients)
	s.checkRestarts(clients)
	s.awaitQuiet()
	s.settleLedgers(clients)
	goAway()
	waiters.Wait()
	s.awaitIdle()
	s.checkEnds(clients)
	s.checkLedgers(clients)
	s.checkContests(clients)
	s.checkStreams(clients)
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
			pause(ctx, interval)
			continue
		}
		name := fmt.Sprintf("w%d.%d", worker, n)
		p, err := s.platform.Worker(name, s.plan.Skews[worker])
		if err != nil {
			s.fault("open worker %s: %v", name, err)
			return
		}
		registry := s.plan.App.Registry(s.perform(p, name), s.take(p, worker), s.receive(p))
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
		pause(ctx, time.Duration(1+mix(s.plan.Seed, name)%20)*time.Second)
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

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
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
		pause(ctx, s.duration(t))
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

// drive does what clients do to an instance.
func (s *simulation) drive(ctx context.Context, in Instance) {
	s.at(in.At)
	err := s.insist(ctx, "start "+in.ID, func(ctx context.Context) error { return s.start(ctx, in) })
	if err != nil && !(s.plan.Cuts > 0 && errors.Is(err, durable.ErrInstanceExists)) { // an attempt that was cut off may have started it
		s.fault("start %s: %v", in.ID, err)
		return
	}
	var all sync.WaitGroup
	for _, e := range in.Raised {
		all.Go(func() {
			s.at(e.At)
			err := s.insist(ctx, "raise "+e.Name+in.ID, func(ctx context.Context) error {
				return durable.Event[string](e.Name).Raise(ctx, s.client, durable.InstanceID(in.ID), s.plan.App.padded(e.Name+" raised"))
			})
			if err != nil && !(s.plan.Cuts > 0 && errors.Is(err, durable.ErrInstanceEnded)) { // it may have ended because of an attempt that was cut off
				s.fault("raise %s for %s: %v", e.Name, in.ID, err)
			}
		})
	}
	if in.Suspended > 0 {
		all.Go(func() { s.suspend(ctx, in) })
	}
	if in.Terminated > 0 {
		all.Go(func() {
			s.at(in.Terminated)
			err := s.insist(ctx, "terminate "+in.ID, func(ctx context.Context) error {
				return s.client.Terminate(ctx, durable.InstanceID(in.ID), s.plan.App.padded("enough"))
			})
			if err != nil && !(s.plan.Cuts > 0 && errors.Is(err, durable.ErrInstanceEnded)) { // an attempt that was cut off may have done it
				s.fault("terminate %s: %v", in.ID, err)
			}
		})
	}
	all.Wait()
}

// start starts an instance, with an execution ID that the seed decides about: those
// of its children are made of it, and with them their instance IDs.
func (s *simulation) start(ctx context.Context, in Instance) error {
	input, err := json.Marshal(Input{Path: in.ID, Program: in.Program, Pad: s.plan.App.padded("")})
	if err != nil {
		return err
	}
	started := &history.ExecutionStarted{
		Header:   history.NewHeader(time.Now()),
		Instance: history.OrchestrationInstance{InstanceID: in.ID, ExecutionID: fmt.Sprintf("%032x", mix(s.plan.Seed, in.ID))},
		Name:     string(child), Input: new(string(input)),
	}
	if s.plan.App.Large {
		started.Tags = map[string]string{"large": s.plan.App.padded("")}
	}
	if in.Unknown {
		started.Name = "Nobody"
	}
	if in.Delay > 0 {
		started.ScheduledStart = history.Ticks(time.Now().Add(in.Delay))
	}
	var refuse []history.RuntimeStatus
	if s.plan.Cuts > 0 { // one that was started must not be begun anew
		refuse = allStatuses
	}
	return s.platform.Client().StartInstance(ctx, provider.TaskMessage{Event: started, Target: started.Instance}, refuse)
}

// suspend suspends an instance for a while, if it has not ended yet.
func (s *simulation) suspend(ctx context.Context, in Instance) {
	s.at(in.Suspended)
	id := durable.InstanceID(in.ID)
	if err := s.insist(ctx, "suspend "+in.ID, func(ctx context.Context) error { return s.client.Suspend(ctx, id, s.plan.App.padded("for a while")) }); err != nil {
		return
	}
	pause(ctx, suspension)
	_ = s.insist(ctx, "resume "+in.ID, func(ctx context.Context) error { return s.client.Resume(ctx, id, s.plan.App.padded("again")) }) // it may not be suspended yet: awaitEnds resumes it
}
