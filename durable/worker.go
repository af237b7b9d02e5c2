package durable

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Worker runs the functions of a registry for a hub.
type Worker struct {
	hub      provider.Worker
	registry *Registry
	config   Config
	waiting  dispatch.Waiting
	stalls   dispatch.Stalls

	dispatcher atomic.Pointer[dispatch.Dispatcher] // nil unless Run runs
}

// NewWorker returns a Worker that runs the work items of p with the functions in r.
// What is added to r after [Worker.Run] was called may not be seen.
func NewWorker(p provider.Worker, r *Registry, cfg Config) *Worker {
	return &Worker{hub: p, registry: r, config: cfg}
}

// Run works until ctx ends. Then it takes nothing new, lets what runs go on
// for at most the configuration's ShutdownTimeout, and returns nil once all is
// handed back. It returns an error if the configuration is out of range or if
// the hub can never be worked on; it retries through outages.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.config.Validate(); err != nil {
		return err
	}
	cfg := w.config.WithDefaults()
	meter, err := metering.New(cfg.Metrics.Provider)
	if err != nil {
		return fmt.Errorf("make the worker's metrics: %w", err)
	}
	ledger := openCrashes(cfg)
	functions := w.registry.forWorker(workerSettings{logger: cfg.Logger, version: cfg.Version, maxActions: cfg.MaxOrchestrationActions, entityWindow: cfg.EntityReorderWindow, http: cfg.HTTP})
	dispatcher := dispatch.New(w.hub, (*engineFunctions)(functions), dispatch.Config{
		MaxConcurrentActivities:    cfg.MaxConcurrentActivities,
		MaxConcurrentOrchestrators: cfg.MaxConcurrentOrchestrators,
		Entities: dispatch.EntityConfig{
			MaxConcurrent: cfg.MaxConcurrentEntities, MaxBatch: cfg.MaxEntityBatch,
			ReorderWindow: cfg.EntityReorderWindow, KeepFailedEffects: cfg.KeepFailedEntityEffects,
		},
		ExtendedSessions:    !cfg.NoExtendedSessions,
		ExtendedSessionIdle: cfg.ExtendedSessionIdle,
		ShutdownTimeout:     cfg.ShutdownTimeout,
		EpisodeWarnAfter:    cfg.EpisodeWarnAfter,
		StallTimeout:        cfg.StallTimeout,
		MaxPayload:          cfg.MaxPayloadBytes,
		CheckVersion:        cfg.checkVersion,
		FailMismatch:        cfg.VersionFailure == FailMismatch,
		FailUnknownAfter:    w.failUnknownAfter(),
		FailUnknownBegun:    cfg.FailUnknownFunctions,
		HoldDifferent:       cfg.HoldNonDeterministic,
		Waiting:             &w.waiting,
		Stalls:              &w.stalls,
		Crashes:             ledger,
		StoreInputs:         cfg.StoreInputs,
		Tracer:              tracing.New(cfg.Tracing.Provider),
		Meter:               meter,
		Lifecycle:           cfg.lifecycle(),
		Logger:              cfg.Logger,
		Now:                 time.Now,
		NewID:               newID,
	})
	w.dispatcher.Store(dispatcher)
	defer w.dispatcher.Store(nil)
	return dispatcher.Run(ctx)
}

// A RunningActivity is an activity that a worker runs.
type RunningActivity = dispatch.RunningActivity

// Running returns the activities of an instance's execution that this worker runs, in no
// order. works is false if it runs nothing, since [Worker.Run] was not called or has returned.
func (w *Worker) Running(id InstanceID, executionID string) (all []RunningActivity, works bool) {
	d := w.dispatcher.Load()
	if d == nil {
		return nil, false
	}
	return d.Running(history.OrchestrationInstance{InstanceID: string(id), ExecutionID: executionID}), true
}

// openCrashes returns what is known of crashes, nil if that is not kept.
func openCrashes(cfg Config) *crashes.Ledger {
	if cfg.CrashFile == "" {
		return nil
	}
	ledger, crashed, err := crashes.Open(cfg.CrashFile)
	if err != nil {
		cfg.Logger.Warn("crashes of the process are not counted", "file", cfg.CrashFile, "error", err)
		return nil
	}
	if crashed != "" {
		cfg.Logger.Error("the process before this one was ended by a panic on a goroutine that a function started, where nothing can recover it. "+
			"Work that ends the process twice before it gets on is set aside", "work", crashed, "file", cfg.CrashFile)
	}
	return ledger
}

// A Crash is something that has ended processes with a panic.
type Crash struct {
	// What is the work, or the function if all of its work counts together.
	What     string    `json:"what"`
	Count    int       `json:"count"`    // how often, in a row
	Last     time.Time `json:"last"`     // when it last did
	SetAside bool      `json:"setAside"` // it is not run
}

// Crashes returns what is counted in a [Config.CrashFile], in order. A file that does
// not exist has none. Who deletes the file, of a worker that runs or not, takes up what
// is set aside.
func Crashes(file string) ([]Crash, error) {
	counts, err := crashes.Read(file)
	if err != nil {
		return nil, err
	}
	var all []Crash
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, Crash{what, counts[what].Crashes, counts[what].Last, counts.Holds(what)})
	}
	return all, nil
}

// failUnknownAfter returns how long what has not begun waits for a worker that knows
// its function, as the dispatcher takes it.
func (w *Worker) failUnknownAfter() time.Duration {
	switch t := w.config.UnknownFunctionTimeout; {
	case t > 0:
		return t
	case t < 0:
		return 0 // for ever
	}
	if sole, ok := w.hub.(provider.Sole); ok && sole.IsSole() {
		return -1 // there can be no other worker
	}
	return DefaultUnknownFunctionTimeout
}

// Waiting returns the work that waits for functions that this worker does not know or
// run, as far as it received it in the last minutes. It also returns the orchestrators and
// operations of entities that run and do not yield.
func (w *Worker) Waiting() []WaitingFunction {
	var all []WaitingFunction
	for _, f := range w.waiting.All(time.Now()) {
		if f.Stalled {
			f.Stack = w.stalls.Stack(f.Name, f.Version)
		}
		all = append(all, WaitingFunction(f))
	}
	if d := w.dispatcher.Load(); d != nil {
		for _, f := range d.Stalled() {
			all = append(all, WaitingFunction(f))
		}
	}
	return all
}

// A WaitingFunction is a function that a worker does not know, and what waits for
// it.
type WaitingFunction struct {
	Kind      string // "orchestrator", "activity" or "entity"
	Name      string
	Version   string
	Crashed   bool      // it is known, and what waits is set aside since it has crashed the process
	Differs   bool      // it is known, and does something else than the histories of those that wait have
	Stalled   bool      // it is known, and the worker gave it up, since it did not yield
	Refusal   string    // the reason why the worker does not take the version; empty if it takes the version
	Since     time.Time // when the worker first had something that waits
	Instances []string  // that wait, or whose activities do, in order
	Runs      bool      // the worker runs it now: it does not yield, and was not given up
	Operation string    // of an entity that runs
	Stack     string    // of code that does not yield, in one of the instances
}

// String says what waits for what.
func (f WaitingFunction) String() string { return dispatch.WaitingFunction(f).String() }
