package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Dispatcher runs the work items of a provider.
type Dispatcher struct {
	provider  provider.Worker
	functions Functions
	config    Config
	log       *slog.Logger
	watchdog  *watchdog

	// Semaphores: entities that run, entities that wait to run, and small results of
	// activities that are being stored.
	entities, waiting, results chan struct{}
	orchestrations, activities places
	idleEntities               idle
	payloads, inputs           *admission // of instances, and of activities

	fetchingInstances, fetchingActivities, committing, completing outage

	settled settled
	items   atomic.Int64 // counts work items, to label them

	mu      sync.Mutex // protects the following
	running map[*item]struct{}
	handled sync.WaitGroup
}

// An item is a work item that runs.
type item struct {
	label string // unique in this process
	what  string // for people
	work  string // the key under which crashes are counted

	activity *provider.ActivityWorkItem // nil if it is none
	began    time.Time                  // of an activity
}

// A RunningActivity is an activity that runs.
type RunningActivity struct {
	TaskID int
	Since  time.Time
}

// Running returns the activities of an execution that run, in no order.
func (d *Dispatcher) Running(of history.OrchestrationInstance) (all []RunningActivity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for it := range d.running {
		if it.activity != nil && it.activity.Instance == of {
			all = append(all, RunningActivity{it.activity.Task.EventID, it.began})
		}
	}
	return all
}

// New returns a Dispatcher of p's work items.
func New(p provider.Worker, fns Functions, cfg Config) *Dispatcher {
	log := cfg.Logger
	if cfg.Waiting == nil {
		cfg.Waiting = new(Waiting)
	}
	if cfg.Stalls == nil {
		cfg.Stalls = new(Stalls)
	}
	d := &Dispatcher{
		provider:           p,
		functions:          fns,
		config:             cfg,
		log:                log,
		watchdog:           newWatchdog(cfg.EpisodeWarnAfter, cfg.StallTimeout),
		entities:           make(chan struct{}, maxEntities(cfg)),
		waiting:            make(chan struct{}, maxWaitingEntities),
		results:            make(chan struct{}, maxResults),
		idleEntities:       idle{limit: maxEntities(cfg), now: cfg.Now},
		orchestrations:     places{taken: make(chan struct{}, cfg.MaxConcurrentOrchestrators), idle: idle{limit: cfg.MaxConcurrentOrchestrators, now: cfg.Now}},
		activities:         places{taken: make(chan struct{}, cfg.MaxConcurrentActivities)},
		payloads:           newAdmission(cfg.maxPayload()),
		inputs:             newAdmission(cfg.maxPayload()),
		fetchingInstances:  outage{what: "fetch orchestrations", log: log},
		fetchingActivities: outage{what: "fetch activities", log: log},
		committing:         outage{what: "commit checkpoints", log: log},
		completing:         outage{what: "send the results of activities", log: log},
		running:            make(map[*item]struct{}),
	}
	d.watchdog.meter = cfg.Meter
	return d
}

// Stalled returns the orchestrators and operations that run without an end in sight, without
// order: the log has a report of each.
func (d *Dispatcher) Stalled() []WaitingFunction { return d.watchdog.stalled() }

// errStopping is the cause with which a worker's contexts end when it stops.
var errStopping = errors.New("the worker is stopping")

// When the worker stops, storage operations may take ioGrace longer than user
// code, so that results that came in time are stored. Abandoning what did not end
// may take handBackTime.
const (
	ioGrace      = 2 * time.Second
	handBackTime = 2 * time.Second
)

// lifetimes are the contexts of a worker's run, in the order in which they end.
type lifetimes struct {
	fetch context.Context // ends when the worker is to stop
	work  context.Context // ends ShutdownTimeout later: that of user code
	io    context.Context // ends ioGrace later still: that of storage operations
}

// Run works until ctx ends. Then it fetches nothing more, waits for its work items
// and returns nil. If user code goes on after its context has ended, Run leaves it
// behind and returns an error that names it.
//
// If the provider ends by itself, Run stops in the same way and returns the
// provider's error.
func (d *Dispatcher) Run(ctx context.Context) error {
	inuse.Tell(ctx, d.inUse)
	fetch, stop := context.WithCancelCause(ctx)
	defer stop(errStopping)
	work, release := delayed(fetch, d.config.ShutdownTimeout)
	defer release()
	io, release := delayed(fetch, d.config.ShutdownTimeout+ioGrace)
	defer release()
	live := lifetimes{fetch, work, io}

	var loops sync.WaitGroup
	var failure error
	loops.Go(func() {
		defer stop(errStopping)
		if err := d.provider.Run(fetch); err != nil && fetch.Err() == nil {
			failure = fmt.Errorf("run storage provider: %w", err)
		} else if err != nil {
			d.log.Warn("the storage provider did not stop cleanly", "error", err)
		}
	})
	loops.Go(func() { d.fetchOrchestrations(live) })
	loops.Go(func() { d.fetchActivities(live) })
	loops.Wait()
	if left := d.wait(io); left != nil {
		return errors.Join(failure, left)
	}
	return failure
}

// delayed returns a context that ends d after parent does.
func delayed(parent context.Context, d time.Duration) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	var mu sync.Mutex
	var timer *time.Timer
	unhook := context.AfterFunc(parent, func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			timer = time.AfterFunc(d, func() { cancel(errStopping) })
		}
	})
	return ctx, func() {
		unhook()
		cancel(errStopping)
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// handBack returns a context in which to abandon or release a work item after the
// others have ended.
func (l lifetimes) handBack() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(l.io), handBackTime)
}

// handle runs f on a goroutine of its own, for one item. Whatever f does to its
// goroutine stays there.
func (d *Dispatcher) handle(it *item, f func(*item)) {
	it.label = fmt.Sprintf("%d", d.items.Add(1))
	d.mu.Lock()
	d.running[it] = struct{}{}
	d.mu.Unlock()
	d.handled.Go(func() {
		defer func() {
			d.mu.Lock()
			delete(d.running, it)
			d.mu.Unlock()
		}()
		labelled(it, func() { f(it) })
	})
}

// wait waits until all work items are done, or until shortly after io ends. What
// still runs then is user code that ignores its context, which the error names.
func (d *Dispatcher) wait(io context.Context) error {
	all := make(chan struct{})
	go func() { // ends with the last item, and is left behind with it
		d.handled.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-io.Done():
	}
	last := time.NewTimer(handBackTime + time.Second)
	defer last.Stop()
	select {
	case <-all:
		return nil
	case <-last.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for it := range d.running {
		names = append(names, it.what)
	}
	slices.Sort(names)
	return fmt.Errorf("stopped while user code goes on that does not heed its context: %s", strings.Join(names, ", "))
}

// nextInstance returns the next work item of an instance when its payload fits.
func (d *Dispatcher) nextInstance(ctx context.Context) (*admitted[*provider.OrchestrationWorkItem], error) {
	w, err := d.provider.NextOrchestration(ctx)
	if err != nil {
		return nil, err
	}
	size := payloadOfItem(w)
	if d.payloads.enter(ctx, size) {
		return &admitted[*provider.OrchestrationWorkItem]{w, size}, nil
	}
	handBack, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBackTime)
	defer cancel()
	if err := w.Session.Release(handBack); err != nil {
		d.log.Warn("cannot release the instance", "instanceId", w.Instance.InstanceID, "error", err)
	}
	return nil, context.Cause(ctx)
}

// nextActivity returns the next activity when its input fits.
func (d *Dispatcher) nextActivity(ctx context.Context) (*admitted[*provider.ActivityWorkItem], error) {
	w, err := d.provider.NextActivity(ctx)
	if err != nil {
		return nil, err
	}
	size := payloadOf(w.Task)
	if d.inputs.enter(ctx, size) {
		return &admitted[*provider.ActivityWorkItem]{w, size}, nil
	}
	handBack, cancel := context.WithTimeout(context.WithoutCancel(ctx), handBackTime)
	defer cancel()
	if err := w.Lock.Abandon(handBack, errStopping); err != nil {
		d.log.Warn("cannot hand the activity back", "instanceId", w.Instance.InstanceID, "error", err)
	}
	return nil, context.Cause(ctx)
}

// fetchActivities runs activities until the worker stops, at most
// MaxConcurrentActivities at once.
func (d *Dispatcher) fetchActivities(live lifetimes) {
	for {
		next, err := fetch(live.fetch, &d.activities, d.nextActivity)
		if err != nil {
			if live.fetch.Err() != nil {
				return
			}
			pause.For(live.fetch, d.fetchingActivities.failed(err))
			continue
		}
		d.fetchingActivities.worked()
		w := next.item
		what := fmt.Sprintf("activity %s of orchestration %s", w.Task.Name, w.Instance.InstanceID)
		work := crashes.Work("activity", w.Task.Name, w.Instance.ExecutionID, w.Task.EventID, w.Instance.InstanceID)
		d.handle(&item{what: what, work: work, activity: w, began: d.config.Now()}, func(it *item) {
			defer d.inputs.leave(next.size)
			d.runActivity(live, w, it.work, d.activities.leave)
		})
	}
}

// runActivity runs an activity and sends its result. It calls free to give back the
// activity's place.
func (d *Dispatcher) runActivity(live lifetimes, w *provider.ActivityWorkItem, work string, free func()) {
	defer func() { free() }()
	log := d.log.With("instanceId", w.Instance.InstanceID, "executionId", w.Instance.ExecutionID,
		"name", w.Task.Name, "taskEventId", w.Task.EventID)
	outcome, end := metering.Completed, d.config.Meter.Begin(metering.Activity, d.config.Now)
	defer func() { end(w.Task.Name, outcome) }()
	handed := false
	abandon := func(cause error) {
		handed, outcome = true, metering.Abandoned
		ctx, cancel := live.handBack()
		defer cancel()
		if err := w.Lock.Abandon(ctx, cause); err != nil {
			log.Warn("cannot hand the activity back", "error", err)
		}
	}
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic while handling the activity", "panic", v, "stack", string(debug.Stack()))
			if !handed {
				abandon(fmt.Errorf("panic while handling the activity: %v", v))
			}
		}
	}()

	fn, ok := d.functions.Activity(w.Task.Name)
	aside := d.config.Crashes.Holds(work)
	if !ok || aside {
		unknown := &unknownFunctionError{kind: "activity", name: w.Task.Name, crashed: aside}
		if failure := d.failureOfUnknown(live.io, w, unknown, log); failure == nil {
			log.Log(live.io, d.waits(w.Instance.InstanceID, unknown), "activity is held back: "+unknown.why())
			abandon(d.config.unknown().hold(unknown, w.Task.Timestamp, true))
		} else if err := d.complete(live, w.Lock, taskResult{failure: failure}.event(w.Task.EventID, d.config.Now()), log); err != nil {
			abandon(fmt.Errorf("send result of activity: %w", err))
		} else {
			outcome = metering.Failed
			d.config.Waiting.remove(w.Instance.InstanceID, unknown.kind)
			d.noCrash(work)
		}
		return
	}
	if w.Attempt > 1 {
		d.config.Waiting.remove(w.Instance.InstanceID, "activity")
		log.Info("activity runs again, since an earlier run did not get to its end", "attempt", w.Attempt)
	}
	ctx, cancel := context.WithCancel(withActivityInfo(live.work, w))
	defer cancel()
	d.config.Meter.Waited(w.Task.Name, d.config.Now().Sub(w.Task.Timestamp))
	ctx, traced := d.config.Tracer.RunActivity(ctx, w.Task, w.Instance)
	r, ok := call(ctx, live.io, fn, w.Task.Input)
	traced(r.failure)
	switch {
	case !ok:
		log.Error("activity goes on although its context has ended; it is handed back")
		abandon(fmt.Errorf("%w, and the activity did not end", errStopping))
		return
	case r.failure != nil && live.work.Err() != nil:
		log.LogAttrs(ctx, slog.LevelInfo, "activity was interrupted; it is handed back", append(failureAttrs(r.failure), slog.String("event", "FunctionAborted"))...)
		abandon(fmt.Errorf("activity was interrupted: %w", context.Cause(live.work)))
		return
	case r.failure != nil:
		outcome = metering.Failed
		log.LogAttrs(ctx, slog.LevelWarn, "activity failed", append(failureAttrs(r.failure), slog.String("event", "FunctionFailed"))...)
	}
	if r.isSmall() { // others need not wait with their user code until it is stored
		select {
		case d.results <- struct{}{}:
			free()
			free = func() { <-d.results }
		default:
		}
	}
	if err := d.complete(live, w.Lock, r.event(w.Task.EventID, d.config.Now()), log); err != nil {
		abandon(fmt.Errorf("send result of activity: %w", err))
		return
	}
	d.noCrash(work)
}

// complete sends an activity's result, and retries if that fails.
func (d *Dispatcher) complete(live lifetimes, lock provider.ActivityLock, result history.Event, log *slog.Logger) error {
	for try := 1; ; try++ {
		err := lock.Complete(live.io, result)
		if err == nil {
			d.completing.worked()
			log.Debug("activity has ended", "event", "FunctionCompleted", "eventType", result.Type())
			return nil
		}
		wait := d.completing.failed(err)
		if try == completeTries || live.io.Err() != nil {
			return err
		}
		pause.For(live.io, wait)
	}
}

// enterEntity waits for a place for an entity and takes it. It reports false if the
// worker stops first. It calls free to give back the place of an orchestration with
// which the entity was fetched.
func (d *Dispatcher) enterEntity(live lifetimes, free func()) bool {
	defer func() { free() }()
	if live.fetch.Err() != nil {
		return false
	}
	select {
	case d.entities <- struct{}{}:
		return true
	default:
	}
	select {
	case d.entities <- struct{}{}:
		return true
	case d.waiting <- struct{}{}:
		free()
		free = func() { <-d.waiting }
	case <-live.fetch.Done():
		return false
	}
	return acquire(live.fetch, d.entities)
}

// runEntity runs the work item of an entity once it has a place.
func (d *Dispatcher) runEntity(live lifetimes, next *admitted[*provider.OrchestrationWorkItem], it *item, free func()) {
	s := &session{d: d, live: live, item: next.item, label: it.label, work: it.work, payload: next.size}
	s.logFor(s.item.Instance)
	defer s.leavePayload()
	defer s.release()
	if !d.enterEntity(live, free) {
		s.abandon(errStopping)
		return
	}
	s.hasRoom = true
	defer s.leaveRoom()

	s.begin()
	defer s.end()
	handledAll := false
	defer func() {
		if handledAll {
			return
		}
		cause := errors.New("the goroutine of the entity was ended by runtime.Goexit")
		if v := recover(); v != nil {
			cause = fmt.Errorf("panic while handling the entity: %v", v)
			s.log.Error("panic while handling the entity", "panic", v, "stack", string(debug.Stack()))
		}
		s.abandon(cause)
	}()
	s.runEntity()
	handledAll = true
}

// fetchOrchestrations runs instances until the worker stops, at most
// MaxConcurrentOrchestrators at once.
func (d *Dispatcher) fetchOrchestrations(live lifetimes) {
	for {
		next, err := fetch(live.fetch, &d.orchestrations, d.nextInstance)
		if err != nil {
			if live.fetch.Err() != nil {
				return
			}
			pause.For(live.fetch, d.fetchingInstances.failed(err))
			continue
		}
		d.fetchingInstances.worked()
		w := next.item
		if history.IsEntity(w.Instance.InstanceID) {
			d.handle(&item{what: "entity " + w.Instance.InstanceID, work: crashes.Work("entity", entityName(w), "", 0, w.Instance.InstanceID)},
				func(it *item) { d.runEntity(live, next, it, d.orchestrations.leave) })
			continue
		}
		work := crashes.Work("orchestrator", orchestratorName(w), "", 0, w.Instance.InstanceID)
		d.handle(&item{what: "orchestration " + w.Instance.InstanceID, work: work}, func(it *item) {
			defer d.orchestrations.leave()
			d.runInstance(live, next, it)
		})
	}
}

// runInstance runs an instance's episode, and those that follow while its
// session is extended.
func (d *Dispatcher) runInstance(live lifetimes, next *admitted[*provider.OrchestrationWorkItem], it *item) {
	s := &session{d: d, live: live, item: next.item, label: it.label, work: it.work, payload: next.size}
	s.logFor(s.item.Instance)
	s.x = &execution{now: d.config.Now, limit: s.limit, stalls: d.config.Stalls, storeInputs: d.config.StoreInputs, holdDifferent: d.config.HoldDifferent}
	s.x.versions = versions{refuses: d.config.CheckVersion, fails: d.config.FailMismatch}
	s.x.unknown = s.d.config.unknown()
	s.x.crashed = func() bool { return d.config.Crashes.Holds(it.work) }
	s.x.stopping = func() bool { return live.fetch.Err() != nil }

	// A failure of one instance ends here: the deferred calls also see a panic of ours.
	s.begin()
	defer s.end()
	handledAll := false
	defer s.leavePayload()
	defer s.release()
	defer func() {
		if handledAll {
			return
		}
		broken := &panicError{recover(), debug.Stack()}
		s.logBroken(broken)
		s.abandon(broken)
	}()
	defer s.close()
	s.run()
	handledAll = true
}

// inUse counts the resources that are free while no work item runs.
func (d *Dispatcher) inUse() inuse.Counts {
	d.mu.Lock()
	running := len(d.running)
	d.mu.Unlock()
	return inuse.Counts{
		"items that are worked on": running, "places of orchestrations": d.orchestrations.inUse(), "places of activities": d.activities.inUse(),
		"places of entities": len(d.entities), "entities that wait for a place": len(d.waiting),
		"extended sessions": d.orchestrations.idle.len(), "extended sessions of entities": d.idleEntities.len(), "results of activities": len(d.results),
		"payload bytes of instances": d.payloads.inUse(), "payload bytes of activities": d.inputs.inUse(),
	}
}

// holdEntity returns the error with which to hold the operations of an entity whose
// function is unknown, nil if they are to fail. An entity without state has not begun.
func (d *Dispatcher) holdEntity(w *provider.OrchestrationWorkItem, f *unknownFunctionError) error {
	var begun bool
	if start := history.StartOf(w.History); start != nil {
		state, err := entity.DecodeState(start.Input)
		if err != nil {
			return f
		}
		begun = state.Text != nil
	}
	if f.crashed || len(w.Messages) == 0 {
		return f
	}
	due, policy := w.Messages[0].Event.Head().Timestamp, d.config.unknown()
	if delayed, ok := provider.EntityDue(w.Messages[0]); ok && delayed.After(due) {
		due = delayed
	}
	if policy.fails(due, d.config.Now(), begun) {
		return nil
	}
	return policy.hold(f, due, begun)
}

// waits records that an instance waits for a function, and returns the level at which
// to log it: the first time as a warning, or as an error if it is set aside.
func (d *Dispatcher) waits(instanceID string, f *unknownFunctionError) slog.Level {
	switch isNew := d.config.Waiting.add(instanceID, f, d.config.Now()); {
	case isNew && f.crashed:
		return slog.LevelError
	case isNew:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// noCrash records that work has ended, which resets its count of crashes.
func (d *Dispatcher) noCrash(work string) {
	if err := d.config.Crashes.Done(work); err != nil {
		d.log.Warn("cannot write the file of crashes", "error", err)
	}
}

// resumed has what is set aside of an instance run again.
func (d *Dispatcher) resumed(instanceID string) {
	if err := d.config.Crashes.Resume(instanceID); err != nil {
		d.log.Warn("cannot write the file of crashes", "error", err)
	}
}

// failureOfUnknown returns the failure with which to complete an activity whose
// function is unknown, nil to hold it for a worker that has it. If its orchestration
// has ended, it completes just to be gone: the receiver drops its result.
func (d *Dispatcher) failureOfUnknown(ctx context.Context, w *provider.ActivityWorkItem, f *unknownFunctionError, log *slog.Logger) *history.FailureDetails {
	now := d.config.Now()
	if !f.crashed && d.config.unknown().fails(w.Task.Timestamp, now, true) {
		log.Warn("activity fails: this worker does not know its function")
		return f.Failure()
	}
	if now.Sub(w.Task.Timestamp) < lateRow {
		return nil
	}
	hub, ok := d.provider.(interface {
		Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error)
	})
	if !ok {
		return nil
	}
	state, err := hub.Instance(ctx, w.Instance.InstanceID, provider.Fetch{})
	switch {
	case errors.Is(err, provider.ErrInstanceNotFound):
	case err != nil:
		return nil
	case !state.Status.IsTerminal() && state.Instance.ExecutionID == w.Instance.ExecutionID:
		return nil
	}
	log.Info("activity is dropped: its orchestration has ended, and " + f.why())
	return f.Failure()
}
