package durable

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Worker runs the functions of a registry for a task hub.
type Worker struct {
	hub      provider.Worker
	registry *Registry
	config   Config
	waiting  dispatch.BlockedFunctions
	stalls   dispatch.Stalls

	dispatcher atomic.Pointer[dispatch.Dispatcher] // nil while Run is not running
}

// NewWorker returns a Worker that runs the work items of p with the functions in r. Do
// not add functions to r after calling [Worker.Run].
func NewWorker(p provider.Worker, r *Registry, cfg Config) *Worker {
	return &Worker{hub: p, registry: r, config: cfg}
}

// Run processes work items until ctx is done. It then accepts no new work, waits up to
// Config.ShutdownTimeout for running functions, releases the remaining work and returns
// nil. It retries through outages of the hub. It returns an error if the configuration
// is invalid or the hub can never be used.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.config.Validate(); err != nil {
		return err
	}
	cfg := w.config.WithDefaults()
	meter, err := metering.New(cfg.Metrics.Provider)
	if err != nil {
		return fmt.Errorf("create the worker's metrics: %w", err)
	}
	defer w.meter(meter, cfg.Logger)()
	engine := cfg.engine()
	engine.FailUnknownAfter = w.failUnknownAfter()
	engine.Blocked, engine.Stalls, engine.Crashes, engine.Meter = &w.waiting, &w.stalls, openCrashes(cfg), meter
	dispatcher := dispatch.New(w.hub, (*engineFunctions)(w.registry.forWorker(cfg)), engine)
	w.dispatcher.Store(dispatcher)
	defer w.dispatcher.Store(nil)
	return dispatcher.Run(ctx)
}

// meter starts to report the worker's orchestrators and the instances that wait. stop ends that.
func (w *Worker) meter(m *metering.Meter, log *slog.Logger) (stop func()) {
	for _, name := range w.registry.Orchestrators() {
		m.Expect(name)
	}
	unregister, err := m.ObserveWaiting(func() (all []metering.WaitingInstances) {
		for _, f := range w.Blocked() {
			all = append(all, f.metered())
		}
		return all
	})
	if err != nil {
		log.Warn("cannot report waiting instances as metrics", "error", err)
		return func() {}
	}
	return func() { _ = unregister() } // fails only if called twice
}

// RunningActivity is an activity or a step that is running in a worker.
type RunningActivity struct {
	TaskID int // number of the action that scheduled the activity or decided the step
	Name   string
	Since  time.Time // when it started
	IsStep bool
	// Attempt is the number of the attempt at a step, from 1. It is zero for an activity.
	// Attempts in memory ([Tries]) count as one.
	Attempt int
}

// Running returns the activities and steps of an instance's execution that this worker is
// running, in no particular order. If [Worker.Run] was not called or has returned,
// works is false.
func (w *Worker) Running(id InstanceID, executionID string) (all []RunningActivity, works bool) {
	d := w.dispatcher.Load()
	if d == nil {
		return nil, false
	}
	execution := history.OrchestrationInstance{InstanceID: string(id), ExecutionID: executionID}
	return convertAll(d.Running(execution), func(a dispatch.RunningActivity) RunningActivity { return RunningActivity(a) }), true
}

// openCrashes opens the crash file. It returns nil if crashes are not counted.
func openCrashes(cfg Config) *crashes.Ledger {
	if cfg.CrashFile == "" {
		return nil
	}
	ledger, crashed, err := crashes.Open(cfg.CrashFile)
	if err != nil {
		cfg.Logger.Warn("cannot open the crash file; crashes are not counted", "file", cfg.CrashFile, "error", err)
		return nil
	}
	if crashed != "" {
		cfg.Logger.Error("the previous process crashed: a goroutine that a function started panicked. "+
			"Work that crashes the process twice without progress is set aside", "work", crashed, "file", cfg.CrashFile)
	}
	return ledger
}

// Crash is work or a function that has crashed processes with a panic.
type Crash struct {
	// What names the work, or the function if all its work is counted together.
	What     string    `json:"what"`
	Count    int       `json:"count"`    // number of crashes in a row
	Last     time.Time `json:"last"`     // time of the last crash
	SetAside bool      `json:"setAside"` // the worker does not run it
}

// Crashes returns the contents of a [Config.CrashFile], sorted by What. If the file
// does not exist, the result is empty. To release the work that is set aside, delete
// the file; the worker may be running.
func Crashes(file string) ([]Crash, error) {
	counts, err := crashes.Read(file)
	if err != nil {
		return nil, err
	}
	var all []Crash
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, Crash{what, counts[what].Crashes, counts[what].Last, counts.IsSetAside(what)})
	}
	return all, nil
}

// failUnknownAfter returns the dispatcher's setting for UnknownFunctionTimeout.
func (w *Worker) failUnknownAfter() time.Duration {
	switch t := w.config.UnknownFunctionTimeout; {
	case t > 0:
		return t
	case t < 0:
		return 0 // forever
	}
	if sole, ok := w.hub.(provider.SingleWorker); ok && sole.IsSingleWorker() {
		return -1 // no other worker can exist, so fail immediately
	}
	return DefaultUnknownFunctionTimeout
}

// Blocked returns functions that this worker does not have, does not accept or holds
// back, with the instances that wait for them. It covers work that the worker received
// in the last few minutes. It also returns running orchestrators and entity operations
// that do not yield.
func (w *Worker) Blocked() []BlockedFunction {
	var all []BlockedFunction
	for _, f := range w.waiting.All(time.Now()) {
		if f.Stalled {
			f.Stack = w.stalls.Stack(f.Name, f.Version)
		}
		all = append(all, BlockedFunction(f))
	}
	if d := w.dispatcher.Load(); d != nil {
		for _, f := range d.Stalled() {
			all = append(all, BlockedFunction(f))
		}
	}
	return all
}

// BlockedFunction is a function with the instances that wait for it. The worker does
// not have the function, does not accept its version, or does not run it for the reason
// in one of the fields. If Runs is set, the function is running and does not yield.
type BlockedFunction struct {
	Kind      string // "orchestrator", "activity" or "entity"
	Name      string
	Version   string
	Crashed   bool      // the function is set aside because it crashed the process
	Differs   bool      // the function deviates from the histories of the instances
	Stalled   bool      // the worker stopped waiting for the function because it did not yield
	Refusal   string    // the reason why the worker does not accept the version; empty if it does
	Since     time.Time // when the worker first received waiting work
	Instances []string  // instances that wait, or whose activities wait, sorted
	Runs      bool      // the function is running and does not yield
	Operation string    // the running operation of an entity
	Stack     string    // stack of the code that does not yield, from one of the instances
}

// metered returns the instances for the metrics.
func (f BlockedFunction) metered() metering.WaitingInstances {
	w := metering.WaitingInstances{Kind: metering.Orchestration, Name: f.Name, Reason: metering.Unknown, Count: len(f.Instances)}
	switch f.Kind {
	case "activity":
		w.Kind = metering.Activity
	case "entity":
		w.Kind = metering.Entity
	}
	switch {
	case f.Crashed:
		w.Reason = metering.Crashed
	case f.Differs:
		w.Reason = metering.Different
	case f.Stalled, f.Runs:
		w.Reason = metering.Blocked
	case f.Refusal != "":
		w.Reason = metering.Unwanted
	}
	return w
}

// String describes the function and the reason of the wait.
func (f BlockedFunction) String() string { return dispatch.BlockedFunction(f).String() }
