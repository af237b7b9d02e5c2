package durable

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Defaults of [Config]. Concurrency limits are per core. Activities and entities have
// the limits of the .NET extension (Options/DurableTaskOptions.cs), because activities
// and entities may block and use any amount of memory. The extension's limit of
// orchestrators is 10 as well. It is higher here because an orchestrator is a goroutine
// that mostly waits for its checkpoint.
const (
	DefaultMaxConcurrentActivitiesPerCore    = 10
	DefaultMaxConcurrentOrchestratorsPerCore = 64
	DefaultMaxConcurrentEntitiesPerCore      = 10
	DefaultMaxEntityBatch                    = 5_000
	DefaultMaxPayloadBytes                   = dispatch.DefaultMaxPayload
	DefaultEntityReorderWindow               = 30 * time.Minute
	DefaultExtendedSessionIdle               = 30 * time.Second
	DefaultShutdownTimeout                   = 5 * time.Second
	DefaultEpisodeWarnAfter                  = 10 * time.Second
	DefaultStallTimeout                      = 30 * time.Second
	DefaultMaxOrchestrationActions           = 100_000
	DefaultUnknownFunctionTimeout            = 10 * time.Minute
)

// maxConcurrent limits concurrency settings. It is far above useful values, to catch
// mistakes such as a wrong unit.
const maxConcurrent = 100_000

// maxActions limits MaxOrchestrationActions. Larger histories take too long to replay.
const maxActions = 100_000_000

// Config configures a [Worker]. The zero value is valid; zero fields have the defaults
// given below.
type Config struct {
	// MaxConcurrentActivities is the maximum number of activities and steps that run at
	// once in this worker, 1 to 100,000. Zero means 10 per core.
	MaxConcurrentActivities int

	// MaxConcurrentOrchestrators is the maximum number of orchestrations in this
	// worker's memory, 1 to 100,000. It includes those that extended sessions keep. Zero
	// means 64 per core.
	MaxConcurrentOrchestrators int

	// MaxPayloadBytes limits the total payload size of the instances that run at once in
	// this worker and, separately, of its activities. The payload of an instance is the
	// inputs and results in its history and its new messages. The payload of an activity
	// is its input. Payloads of up to 256 KiB do not count. An instance or activity that
	// exceeds the limit waits, and the next ones wait behind it. One instance and one
	// activity always run, whatever their size. Zero means 128 MiB; any positive size is valid.
	MaxPayloadBytes int64

	// MaxConcurrentEntities is the maximum number of entities that run at once in this
	// worker, 1 to 100,000. Zero means 10 per core.
	MaxConcurrentEntities int

	// MaxEntityBatch is the maximum number of operations of an entity between two writes
	// of their results, 1 to 100,000. Zero means 5,000.
	MaxEntityBatch int

	// EntityReorderWindow is the time for which an entity remembers received messages,
	// to put them in order and to discard duplicates. The maximum is a year. Zero means
	// 30 minutes. A negative value disables both.
	EntityReorderWindow time.Duration

	// KeepFailedEntityEffects keeps the effects of a failed operation: its change of the
	// entity's state and the messages that it sent. By default a failed operation has no
	// effect.
	KeepFailedEntityEffects bool

	// ExtendedSessionIdle is the maximum time that an idle instance stays in memory, up
	// to a day. While it is in memory, its next episode need not read and replay the
	// history. It is unloaded early if another instance needs its slot (see
	// MaxConcurrentOrchestrators), if another worker acquires its partition, or if memory
	// is short: the histories of waiting instances use at most 64 MiB. At most
	// MaxConcurrentEntities entities are kept in memory. Zero means 30 seconds. A negative
	// value unloads each instance after every episode.
	ExtendedSessionIdle time.Duration

	// ShutdownTimeout is the time that running activities and episodes get to finish
	// when the worker stops, at most an hour. Then the contexts of the activities are
	// canceled. Zero means 5 seconds.
	ShutdownTimeout time.Duration

	// EpisodeWarnAfter is the time without progress after which the worker logs an
	// orchestrator as an error, or an entity operation as a warning, with its stack. The
	// maximum is an hour. Zero means 10 seconds.
	EpisodeWarnAfter time.Duration

	// StallTimeout is the time without progress after which the worker stops waiting for
	// an orchestrator, at most an hour. Such an orchestrator blocks outside durable
	// calls, or computes without end. Each durable call is progress. Time in which the
	// process does not run, or runs slowly, does not count. Zero means 30 seconds.
	//
	// The worker holds the instance back: it does not run the orchestrator again until
	// the instance is suspended and resumed, or the process restarts. The instance can
	// be terminated meanwhile. If a goroutine that the orchestrator started has made a
	// durable call, the timeout is one second and the instance fails with a
	// [UsageError].
	//
	// Go cannot stop code from outside. The abandoned code keeps its memory, and an
	// endless loop occupies a core, until the process restarts.
	StallTimeout time.Duration

	// MaxOrchestrationActions is the maximum number of actions of an execution, such as
	// calls and sent messages, 1 to 100,000,000. An execution that exceeds it fails,
	// because it most likely never ends. Zero means 100,000.
	MaxOrchestrationActions int

	// StoreInputs stores the inputs of activities and sub-orchestrations in the caller's
	// history too, for diagnostics. By default only the callee stores them.
	StoreInputs bool

	// Version is the version of this worker. It is the default version of
	// sub-orchestrations. If it is empty, the worker accepts instances of all versions.
	Version Version

	// VersionMatch selects the instances that the worker accepts, by comparing their
	// version with Version. Zero means MatchCurrentOrOlder.
	VersionMatch VersionMatchStrategy

	// VersionFailure defines what happens to instances that VersionMatch does not
	// select. Zero means RejectMismatch.
	VersionFailure VersionFailureStrategy

	// UnknownFunctionTimeout is the time after which work for an unregistered function
	// fails. Until then it waits for a worker that has the function. Such a worker may
	// start during a rolling deployment. The timeout applies to instances that have not
	// started and to operations of entities that do not exist. The maximum is a year.
	// Zero means 10 minutes, or immediate failure on a hub that cannot have other
	// workers. A negative value means that the work waits forever.
	UnknownFunctionTimeout time.Duration

	// FailUnknownFunctions applies UnknownFunctionTimeout to started instances, existing
	// entities and activities too. By default they wait until a worker has their
	// function or they are terminated, so a wrong deployment ends no running work.
	FailUnknownFunctions bool

	// HoldNonDeterministic holds back instances whose orchestrator deviates from the
	// history. They wait until a worker has matching code or they are terminated, so a
	// wrong deployment ends no running work. By default they fail with a
	// [NonDeterminismError].
	HoldNonDeterministic bool

	// CrashFile is the path of a small file in which the worker counts crashes of its
	// process. It counts panics on goroutines that a function started, which the worker
	// cannot recover. Work that crashes the process twice without progress is set aside:
	// the worker no longer runs it. If a function crashes the process five times in a
	// row in spite of progress, all its work is set aside. To run the work again, suspend
	// and resume its instance (any instance of the function, if all its work is set
	// aside), or delete the file. To find the instances in a crash report, the worker
	// sets the process's crash output and adds tracebacklabels=1 to its GODEBUG. An empty
	// path disables the count. See [Crashes].
	CrashFile string

	// HTTP configures the requests of [CallHTTP].
	HTTP HTTPConfig

	// Tracing configures the destination of spans. The zero value disables tracing.
	Tracing Tracing

	// Metrics configures the destination of metrics. The zero value disables metrics.
	Metrics Metrics

	// Lifecycle is called when an orchestration has started or ended on this worker, in
	// the order of the commits. It must return immediately. Delivery is best effort:
	// instances that end before they run are never reported, and events committed right
	// before a crash may be lost. Nil means no calls.
	Lifecycle func(LifecycleEvent)

	// Logger receives the log of the worker and of orchestrators. Nil means
	// slog.Default().
	Logger *slog.Logger
}

// WithDefaults returns a copy of c in which zero fields are set to their defaults.
func (c Config) WithDefaults() Config {
	if c.MaxConcurrentActivities == 0 {
		c.MaxConcurrentActivities = DefaultMaxConcurrentActivitiesPerCore * runtime.NumCPU()
	}
	if c.MaxConcurrentOrchestrators == 0 {
		c.MaxConcurrentOrchestrators = DefaultMaxConcurrentOrchestratorsPerCore * runtime.NumCPU()
	}
	if c.MaxPayloadBytes == 0 {
		c.MaxPayloadBytes = DefaultMaxPayloadBytes
	}
	if c.MaxConcurrentEntities == 0 {
		c.MaxConcurrentEntities = DefaultMaxConcurrentEntitiesPerCore * runtime.NumCPU()
	}
	if c.MaxEntityBatch == 0 {
		c.MaxEntityBatch = DefaultMaxEntityBatch
	}
	if c.EntityReorderWindow == 0 {
		c.EntityReorderWindow = DefaultEntityReorderWindow
	}
	if c.ExtendedSessionIdle == 0 {
		c.ExtendedSessionIdle = DefaultExtendedSessionIdle
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	if c.EpisodeWarnAfter == 0 {
		c.EpisodeWarnAfter = DefaultEpisodeWarnAfter
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	if c.MaxOrchestrationActions == 0 {
		c.MaxOrchestrationActions = DefaultMaxOrchestrationActions
	}
	c.HTTP = c.HTTP.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate applies [Config.WithDefaults] and returns an error that names the first
// field whose value is out of range.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if c.MaxPayloadBytes < 0 {
		return fmt.Errorf("MaxPayloadBytes is %d; want more than 0", c.MaxPayloadBytes)
	}
	counts := []struct {
		field      string
		value, max int
	}{
		{"MaxConcurrentActivities", c.MaxConcurrentActivities, maxConcurrent},
		{"MaxConcurrentOrchestrators", c.MaxConcurrentOrchestrators, maxConcurrent},
		{"MaxConcurrentEntities", c.MaxConcurrentEntities, maxConcurrent},
		{"MaxEntityBatch", c.MaxEntityBatch, maxConcurrent},
		{"MaxOrchestrationActions", c.MaxOrchestrationActions, maxActions},
	}
	for _, f := range counts {
		if f.value < 1 || f.value > f.max {
			return fmt.Errorf("%s is %d; want 1 to %d", f.field, f.value, f.max)
		}
	}
	if _, ok := matchNames[c.VersionMatch]; !ok {
		return fmt.Errorf("VersionMatch is %d; want MatchCurrentOrOlder, MatchStrict or MatchNone", c.VersionMatch)
	}
	if _, ok := failureNames[c.VersionFailure]; !ok {
		return fmt.Errorf("VersionFailure is %d; want RejectMismatch or FailMismatch", c.VersionFailure)
	}
	times := []struct {
		field      string
		value, max time.Duration
	}{
		{"EntityReorderWindow", max(c.EntityReorderWindow, 0), 365 * 24 * time.Hour},
		{"ExtendedSessionIdle", max(c.ExtendedSessionIdle, 0), 24 * time.Hour},
		{"ShutdownTimeout", c.ShutdownTimeout, time.Hour},
		{"EpisodeWarnAfter", c.EpisodeWarnAfter, time.Hour},
		{"StallTimeout", c.StallTimeout, time.Hour},
		{"UnknownFunctionTimeout", max(c.UnknownFunctionTimeout, 0), 365 * 24 * time.Hour},
	}
	for _, f := range times {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("%s is %v; want more than 0 and at most %v", f.field, f.value, f.max)
		}
	}
	return c.HTTP.validate()
}

// engine returns the configuration of the engine. Each setting of the engine is set here,
// except those that need the worker's hub or state; see [Worker.Run]. A registry reads
// the settings of functions from c itself.
func (c Config) engine() dispatch.Config {
	return dispatch.Config{
		MaxConcurrentActivities:    c.MaxConcurrentActivities,
		MaxConcurrentOrchestrators: c.MaxConcurrentOrchestrators,
		Entities: dispatch.EntityConfig{
			MaxConcurrent: c.MaxConcurrentEntities, MaxBatch: c.MaxEntityBatch,
			ReorderWindow: c.EntityReorderWindow, KeepFailedEffects: c.KeepFailedEntityEffects,
		},
		ExtendedSessions:     c.ExtendedSessionIdle > 0,
		ExtendedSessionIdle:  c.ExtendedSessionIdle,
		ShutdownTimeout:      c.ShutdownTimeout,
		EpisodeWarnAfter:     c.EpisodeWarnAfter,
		StallTimeout:         c.StallTimeout,
		MaxPayload:           c.MaxPayloadBytes,
		CheckVersion:         c.checkVersion,
		FailVersionMismatch:  c.VersionFailure == FailMismatch,
		FailUnknownStarted:   c.FailUnknownFunctions,
		HoldNonDeterministic: c.HoldNonDeterministic,
		StoreInputs:          c.StoreInputs,
		Tracer:               tracing.New(c.Tracing.Provider),
		Lifecycle:            c.lifecycle(),
		Logger:               c.Logger,
		Now:                  time.Now,
		NewID:                newID,
	}
}

// lifecycle returns the dispatcher's callback, or nil if Lifecycle is nil.
func (c Config) lifecycle() func(dispatch.LifecycleEvent) {
	if c.Lifecycle == nil {
		return nil
	}
	return func(e dispatch.LifecycleEvent) {
		c.Lifecycle(LifecycleEvent{Name: e.Name, InstanceID: InstanceID(e.InstanceID), Status: e.Status, Reason: e.Reason})
	}
}

// checkVersion returns an error if the worker does not accept instances of the given
// version.
func (c Config) checkVersion(instance string) error {
	order := Version(instance).Compare(c.Version)
	switch {
	case c.Version.key() == "":
		return nil
	case c.VersionMatch == MatchStrict && order != 0:
		return fmt.Errorf("the orchestration version '%s' does not match the worker version '%s'", instance, c.Version)
	case c.VersionMatch == MatchCurrentOrOlder && order > 0:
		return fmt.Errorf("the orchestration version '%s' is greater than the worker version '%s'", instance, c.Version)
	}
	return nil
}

// LifecycleEvent reports to [Config.Lifecycle] that an orchestration has started or
// ended. An orchestration that continues as new reports Completed and then Running, as
// in .NET.
type LifecycleEvent struct {
	Name       string
	InstanceID InstanceID
	// Status is Running for a start. For an end it is Completed, Failed or Terminated.
	Status RuntimeStatus
	// Reason is the failure message, or the reason of the termination.
	Reason string
}

// Metrics records what a [Worker] does in an OpenTelemetry meter provider. It is a
// field of [Config]. The zero value disables metrics, at no cost.
//
//	durabletask.work_items          counter    by durabletask.type (orchestration, activity, entity),
//	                                           durabletask.task.name and durabletask.outcome
//	                                           (completed, failed, abandoned)
//	durabletask.work_items.active   up-down    by durabletask.type: items in flight
//	durabletask.work_item.duration  histogram  seconds, by the attributes of work_items
//	durabletask.activity.wait       histogram  seconds from schedule to run, by durabletask.task.name
//	durabletask.stalls              counter    code that did not yield, by durabletask.type,
//	                                           durabletask.task.name and durabletask.outcome
//	                                           (reported, given_up)
//	durabletask.non_determinism     counter    episodes that deviated from their history, by
//	                                           durabletask.task.name
//	durabletask.instances.waiting   gauge      instances that wait for a function, by durabletask.type,
//	                                           durabletask.task.name and durabletask.reason (unknown,
//	                                           refused, different, crashed, blocked)
type Metrics struct{ Provider metric.MeterProvider }

// Tracing writes spans to an OpenTelemetry tracer provider. It is also a field of
// [Config]. It uses the names, attributes and parents of Durable Functions' distributed
// tracing V2: create_orchestration, orchestration, activity, timer,
// orchestration_event, entity. Parent spans are stored with messages and histories, so
// a trace continues through workers of other programs, including .NET.
//
// Applies to: [NewClient].
//
// An orchestration is traced if its starter is traced. The worker that processes the
// end of an orchestration or of an awaited task writes its span. A rewound
// orchestration keeps its span ID, as in DurableTask.AzureStorage: each run that ends
// writes a span with that ID.
//
// Span IDs are chosen when spans start. The provider must therefore use [SpanIDs] as
// its ID generator:
//
//	sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(durable.SpanIDs{}), …)
//
// The zero value disables tracing, at no cost.
type Tracing struct{ Provider trace.TracerProvider }

func (t Tracing) applyClient(c *Client) { c.tracer = tracing.New(t.Provider) }

// SpanIDs is the ID generator that [Tracing] requires. Pass it to the SDK's tracer
// provider. Its IDs are random, except for spans whose ID is stored in a history.
type SpanIDs struct{}

// NewIDs returns the IDs of the first span of a trace.
func (SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return tracing.SpanIDs{}.NewIDs(ctx)
}

// NewSpanID returns the ID of another span of a trace.
func (SpanIDs) NewSpanID(ctx context.Context, id trace.TraceID) trace.SpanID {
	return tracing.SpanIDs{}.NewSpanID(ctx, id)
}
