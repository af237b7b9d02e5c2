package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
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

	// Semaphores: running entities, entities that wait for a slot, and small results of
	// activities that are being stored.
	entities, waiting, results chan struct{}
	waitingForSteps            chan struct{} // sessions whose steps all wait for a slot
	waitingForPolls            chan struct{} // sessions whose steps are all polls that wait in memory
	orchestrations, activities slots
	idleEntities               idle
	payloads, inputs           *admission // of instances, and of activities

	fetchingInstances, fetchingActivities, committing, completing outage

	settled  settled
	stepLoad stepLoad
	items    atomic.Int64 // number of work items so far; labels them

	mu      sync.Mutex // protects the following
	running map[*item]struct{}
	handled sync.WaitGroup
}

// An item is a work item that is running.
type item struct {
	label string // unique in this process
	what  string // description for error messages
	work  string // the key of its crash count

	instance history.OrchestrationInstance // of an activity or a step; zero for other items
	running  RunningActivity               // the activity or step
}

// A RunningActivity is a running activity or step of an execution.
type RunningActivity struct {
	TaskID  int
	Name    string
	Since   time.Time
	IsStep  bool
	Attempt int // at a step; zero for an activity
}

// Running returns the running activities and steps of an execution, unordered.
func (d *Dispatcher) Running(instance history.OrchestrationInstance) (all []RunningActivity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for it := range d.running {
		if it.instance == instance {
			all = append(all, it.running)
		}
	}
	return all
}

// New returns a Dispatcher for p's work items.
func New(p provider.Worker, fns Functions, cfg Config) *Dispatcher {
	log := cfg.Logger
	if cfg.Blocked == nil {
		cfg.Blocked = new(BlockedFunctions)
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
		waitingForSteps:    make(chan struct{}, maxWaitingSessions),
		waitingForPolls:    make(chan struct{}, maxWaitingSessions),
		idleEntities:       idle{limit: maxEntities(cfg), now: cfg.Now},
		orchestrations:     slots{taken: make(chan struct{}, cfg.MaxConcurrentOrchestrators), idle: idle{limit: cfg.MaxConcurrentOrchestrators, now: cfg.Now}},
		activities:         slots{taken: make(chan struct{}, cfg.MaxConcurrentActivities)},
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

// Stalled returns the orchestrators and operations that have run for too long without progress,
// unordered. The log contains a report of each.
func (d *Dispatcher) Stalled() []BlockedFunction { return d.watchdog.stalled() }

// errStopping is the cause that ends a worker's contexts when it stops.
var errStopping = errors.New("the worker is stopping")

// When the worker stops, storage operations may take ioGrace longer than user code, so that its
// last results are stored. Abandoning unfinished work may take abandonTime.
const (
	ioGrace     = 2 * time.Second
	abandonTime = 2 * time.Second
)

// Run runs work items until ctx ends. It then fetches no more items, waits for the running
// ones, and returns nil. If user code ignores the cancellation of its context, Run returns an
// error that names it, and its goroutines continue.
//
// If the provider stops on its own, Run stops in the same way and returns the provider's error.
func (d *Dispatcher) Run(ctx context.Context) error {
	inuse.Register(ctx, d.inUse)
	if observer, ok := d.provider.(provider.StepObserver); ok {
		observer.ObserveSteps(func() provider.QueueLoad { return d.stepLoad.read(d.config.Now()) })
	}
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

// handle runs f for one item on a goroutine of its own. A runtime.Goexit of f ends only this
// goroutine. f must recover from its panics.
func (d *Dispatcher) handle(it *item, f func(*item)) {
	it.label = strconv.FormatInt(d.items.Add(1), 10)
	d.mu.Lock()
	d.running[it] = struct{}{}
	d.mu.Unlock()
	d.handled.Go(func() {
		growStack()
		defer func() {
			d.mu.Lock()
			delete(d.running, it)
			d.mu.Unlock()
		}()
		labeled(it, func() { f(it) })
	})
}

// growStack grows the stack of a new goroutine to a size at which it rarely grows again. The runtime
// copies a stack when it grows, which takes the least time while the stack is almost empty.
//
//go:noinline
func growStack() {
	var space [3500]byte
	runtime.KeepAlive(&space)
}

// wait waits until all work items have ended, or until shortly after io ends. User code that is
// still running then ignores its context. The error names it.
func (d *Dispatcher) wait(io context.Context) error {
	all := make(chan struct{})
	go func() { // ends with the last item
		d.handled.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-io.Done():
	}
	last := time.NewTimer(abandonTime + time.Second)
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
	return fmt.Errorf("shutdown timed out: user code ignored context cancellation: %s", strings.Join(names, ", "))
}

// nextInstance returns the next work item of an instance, as soon as its payload fits.
func (d *Dispatcher) nextInstance(ctx, wait context.Context) (*admitted[*provider.OrchestrationWorkItem], error) {
	w, err := d.provider.NextOrchestration(wait)
	if err != nil {
		return nil, err
	}
	size := payloadOfItem(w)
	if d.payloads.enter(ctx, size) {
		return &admitted[*provider.OrchestrationWorkItem]{w, size}, nil
	}
	abandonCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	if err := w.Session.Release(abandonCtx); err != nil {
		s := session{d: d, item: w}
		s.logFor(w.Instance, startOfItem(w))
		s.log.Warn("cannot release the instance", "error", err)
	}
	return nil, context.Cause(ctx)
}

// nextActivity returns the next activity, as soon as its input fits.
func (d *Dispatcher) nextActivity(ctx, wait context.Context) (*admitted[*provider.ActivityWorkItem], error) {
	w, err := d.provider.NextActivity(wait)
	if err != nil {
		return nil, err
	}
	size := payloadOf(w.Task)
	if d.inputs.enter(ctx, size) {
		return &admitted[*provider.ActivityWorkItem]{w, size}, nil
	}
	abandonCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	if err := w.Lock.Abandon(abandonCtx, errStopping); err != nil {
		d.activityLog(w).Warn("cannot abandon the activity", "error", err)
	}
	return nil, context.Cause(ctx)
}

// fetchActivities runs activities until the worker stops, at most MaxConcurrentActivities at a
// time.
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
		d.fetchingActivities.succeeded()
		w := next.item
		what := "activity " + w.Task.Name + " of orchestration " + w.Instance.InstanceID
		work := crashes.WorkName("activity", w.Task.Name, w.Instance.ExecutionID, w.Task.EventID, w.Instance.InstanceID)
		running := RunningActivity{TaskID: w.Task.EventID, Name: w.Task.Name, Since: d.config.Now()}
		d.handle(&item{what: what, work: work, instance: w.Instance, running: running}, func(it *item) {
			defer d.inputs.release(next.size)
			d.runActivity(live, w, it.work, d.activities.release)
		})
	}
}

// runActivity runs an activity and sends its result. It calls free to release the activity's
// slot.
func (d *Dispatcher) runActivity(live lifetimes, w *provider.ActivityWorkItem, work string, free func()) {
	defer func() { free() }()
	log := d.activityLog(w)
	outcome, end := metering.Completed, d.config.Meter.Begin(metering.Activity, d.config.Now)
	defer func() { end(w.Task.Name, outcome) }()
	abandoned := false
	abandon := func(cause error) {
		abandoned, outcome = true, metering.Abandoned
		ctx, cancel := live.abandonContext()
		defer cancel()
		if err := w.Lock.Abandon(ctx, cause); err != nil {
			log.Warn("cannot abandon the activity", "error", err)
		}
	}
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic while handling the activity", "panic", v, "stack", string(debug.Stack()))
			if !abandoned {
				abandon(fmt.Errorf("panic while handling the activity: %v", v))
			}
		}
	}()

	fn, ok := d.functions.Activity(w.Task.Name)
	setAside := d.config.Crashes.IsSetAside(work)
	if !ok || setAside {
		unknown := &unknownFunctionError{kind: "activity", name: w.Task.Name, crashed: setAside}
		if failure := d.failureOfUnknown(live.io, w, unknown, log); failure == nil {
			log.Log(live.io, d.recordBlocked(w.Instance.InstanceID, unknown), "activity is held back: "+unknown.reason())
			abandon(d.config.unknown().hold(unknown, w.Task.Timestamp, true))
		} else if err := d.complete(live, w.Lock, taskResult{failure: failure}.event(w.Task.EventID, d.config.Now()), log); err != nil {
			abandon(fmt.Errorf("send result of activity: %w", err))
		} else {
			outcome = metering.Failed
			d.config.Blocked.remove(w.Instance.InstanceID, unknown.kind)
			d.resetCrashes(work)
		}
		return
	}
	if w.Attempt > 1 {
		d.config.Blocked.remove(w.Instance.InstanceID, "activity")
		log.Info("activity runs again because an earlier run did not complete", "attempt", w.Attempt)
	}
	ctx, cancel := context.WithCancel(withActivityInfo(live.work, w))
	defer cancel()
	d.config.Meter.RecordWait(w.Task.Name, d.config.Now().Sub(w.Task.Timestamp))
	ctx, traced := d.config.Tracer.RunActivity(ctx, w.Task, w.Instance)
	r, ok := call(ctx, live.io, fn, w.Task.Input)
	traced(r.failure)
	switch {
	case !ok:
		log.Error("activity ignores the cancellation of its context; it will be redelivered")
		abandon(fmt.Errorf("%w and the activity did not end", errStopping))
		return
	case r.failure != nil && live.work.Err() != nil:
		log.LogAttrs(live.io, slog.LevelInfo, "activity was interrupted; it will be redelivered", append(failureAttrs(r.failure), slog.String("event", "FunctionAborted"))...)
		abandon(fmt.Errorf("activity was interrupted: %w", context.Cause(live.work)))
		return
	case r.failure != nil:
		outcome = metering.Failed
		log.LogAttrs(live.io, slog.LevelWarn, "activity failed", append(failureAttrs(r.failure), slog.String("event", "FunctionFailed"))...)
	}
	if r.isSmall() { // release the slot before the result is stored
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
	d.resetCrashes(work)
}

// activityLog returns the log of an activity.
func (d *Dispatcher) activityLog(w *provider.ActivityWorkItem) *slog.Logger {
	return instanceLog(d.log, w.Instance, w.Task.ParentTraceContext, "name", w.Task.Name, "taskEventId", w.Task.EventID)
}

// complete sends an activity's result, with retries.
func (d *Dispatcher) complete(live lifetimes, lock provider.ActivityLock, result history.Event, log *slog.Logger) error {
	for try := 1; ; try++ {
		err := lock.Complete(live.io, result)
		if err == nil {
			d.completing.succeeded()
			log.Debug("activity ended", "event", "FunctionCompleted", "eventType", result.Type())
			return nil
		}
		wait := d.completing.failed(err)
		if try == completeTries || live.io.Err() != nil {
			return err
		}
		pause.For(live.io, wait)
	}
}

// fetchOrchestrations runs instances until the worker stops, at most MaxConcurrentOrchestrators
// at a time.
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
		d.fetchingInstances.succeeded()
		w := next.item
		if history.IsEntity(w.Instance.InstanceID) {
			d.handle(&item{what: "entity " + w.Instance.InstanceID, work: crashes.WorkName("entity", entityName(w), "", 0, w.Instance.InstanceID)},
				func(it *item) { newEntitySession(d, live, next, it).handle(d.orchestrations.release) })
			continue
		}
		work := crashes.WorkName("orchestrator", orchestratorName(w), "", 0, w.Instance.InstanceID)
		d.handle(&item{what: "orchestration " + w.Instance.InstanceID, work: work}, func(it *item) { newOrchestrationSession(d, live, next, it).handle() })
	}
}

// isExact reports whether the hub is [provider.ExactlyOnce].
func (d *Dispatcher) isExact() bool {
	exact, ok := d.provider.(provider.ExactlyOnce)
	return ok && exact.IsExactlyOnce()
}

// inUse counts resources. All counts are 0 while no work item is running.
func (d *Dispatcher) inUse() inuse.Counts {
	d.mu.Lock()
	running := len(d.running)
	d.mu.Unlock()
	return inuse.Counts{
		"running work items": running, "orchestration slots": d.orchestrations.inUse(), "activity slots": d.activities.inUse(),
		"entity slots": len(d.entities), "entities waiting for a slot": len(d.waiting), "sessions waiting for steps": len(d.waitingForSteps),
		"sessions waiting for polls": len(d.waitingForPolls),
		"extended sessions":          d.orchestrations.idle.len(), "extended sessions of entities": d.idleEntities.len(), "results of activities": len(d.results),
		"payload bytes of instances": d.payloads.inUse(), "payload bytes of activities": d.inputs.inUse(),
	}
}

// recordBlocked records that an instance waits for a function. It returns the level of the log
// message: a warning the first time, an error if the instance is set aside, otherwise debug.
func (d *Dispatcher) recordBlocked(instanceID string, f *unknownFunctionError) slog.Level {
	switch isNew := d.config.Blocked.add(instanceID, f, d.config.Now()); {
	case isNew && f.crashed:
		return slog.LevelError
	case isNew:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// resetCrashes records that work has ended, which resets its crash count.
func (d *Dispatcher) resetCrashes(work string) {
	if err := d.config.Crashes.Done(work); err != nil {
		d.log.Warn("cannot write the crash file", "error", err)
	}
}

// resumeSetAside makes the work that is set aside for an instance run again.
func (d *Dispatcher) resumeSetAside(instanceID string) {
	if err := d.config.Crashes.Resume(instanceID); err != nil {
		d.log.Warn("cannot write the crash file", "error", err)
	}
}

// failureOfUnknown returns the failure of an activity with an unknown function, or nil to hold
// it back for a worker that has the function. If its orchestration has ended, it returns a
// failure, which removes the activity from its queue; the receiver discards the failure.
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
	log.Info("activity is discarded: its orchestration has ended, and " + f.reason())
	return f.Failure()
}
