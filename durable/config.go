package durable

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

// Defaults of [Config]. The numbers of concurrent functions are per core. Those of
// activities and entities, which wait for others and use memory as their authors will,
// are as in the .NET extension (Options/DurableTaskOptions.cs). Of orchestrators it has
// 10, too: here one is a goroutine that mostly waits until its checkpoint is stored.
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

// maxConcurrent is a bound far above what a process can use, which catches a
// value that was meant as something else.
const maxConcurrent = 100_000

// maxActions is a bound above which nothing can be replayed in useful time.
const maxActions = 100_000_000

// Config says how a [Worker] works. The zero value works; fields that are zero
// have the defaults named with them.
type Config struct {
	// MaxConcurrentActivities is how many activities run at once in this
	// worker, 1-100000. Zero means 10 for each core.
	MaxConcurrentActivities int

	// MaxConcurrentOrchestrators is how many instances this worker has in memory
	// at once, with those that extended sessions keep, 1-100000. Zero means 64 for
	// each core.
	MaxConcurrentOrchestrators int

	// MaxPayloadBytes is the largest total size of the payloads of the instances that run
	// at once in this worker, and of the inputs of its activities. The payload of an
	// instance is the inputs and results in its history and its new messages. An instance
	// or activity that does not fit waits, and delays the next ones. One instance
	// and one activity always run, however large they are. Payloads of up to 256 KiB do
	// not count. Zero means 128 MiB.
	MaxPayloadBytes int64

	// MaxConcurrentEntities is how many entities this worker runs at once, 1-100000.
	// Zero means 10 for each core.
	MaxConcurrentEntities int

	// MaxEntityBatch is how many operations of an entity are performed before their
	// results are stored, 1-100000. Zero means 5,000.
	MaxEntityBatch int

	// EntityReorderWindow is how long an entity remembers received messages, to order
	// them and to drop duplicates, at most a year. Zero means 30 minutes, and less than
	// zero that it does neither.
	EntityReorderWindow time.Duration

	// KeepFailedEntityEffects keeps what a failed operation did: its change of the
	// entity's state, and the messages that it sent. Otherwise a failed operation has
	// no effect.
	KeepFailedEntityEffects bool

	// NoExtendedSessions keeps no instance in memory after an episode. Otherwise it
	// stays for a while, and the next episode need not read and replay its history.
	// It leaves at once when another instance needs its place among
	// MaxConcurrentOrchestrators, another worker its partition, or others its memory:
	// the histories of those that wait may have 64 MiB. As many entities are kept as
	// MaxConcurrentEntities.
	NoExtendedSessions bool

	// ExtendedSessionIdle is how long an instance is kept in memory at most without
	// anything happening, up to a day. Zero means 30 s.
	ExtendedSessionIdle time.Duration

	// ShutdownTimeout is how long running activities and episodes may go on
	// after the worker was stopped, at most an hour. Then the activities'
	// contexts are cancelled. Zero means 5 s.
	ShutdownTimeout time.Duration

	// EpisodeWarnAfter is the time without progress, at most an hour, after which the
	// log reports an orchestrator with its stack. Zero means 10 s.
	EpisodeWarnAfter time.Duration

	// StallTimeout is the time without progress, at most an hour, after which the worker
	// stops waiting for an orchestrator: it waits for something other than a durable
	// task, or it computes without end. Each durable call is progress. Time in which
	// the process does not run, or runs slowly, does not count. Zero means 30 s.
	//
	// The worker holds the instance back. It does not run it again until the instance
	// is suspended and resumed, or the process restarts. The instance can be terminated
	// and suspended meanwhile. If a goroutine that the orchestrator started has made a
	// durable call, the orchestrator is given up after a second, and the instance fails
	// with a [UsageError].
	//
	// Go cannot stop code from outside. The given-up code keeps its memory, and an
	// endless loop uses a core, until the process restarts.
	StallTimeout time.Duration

	// MaxOrchestrationActions is how many things an execution may begin or send,
	// 1-100000000, before it fails: one that begins more most likely never
	// ends. Zero means 100,000.
	MaxOrchestrationActions int

	// StoreInputs keeps the inputs of activities and sub-orchestrations in the
	// histories of those that call them, for people to look at. Otherwise only
	// those who get the inputs have them.
	StoreInputs bool

	// Version is the version of what this worker runs. Sub-orchestrations for
	// which none was chosen get it. Empty means none; then the worker takes
	// instances of all versions.
	Version Version

	// VersionMatch says which instances the worker takes, by their version and
	// its own. Zero means MatchCurrentOrOlder.
	VersionMatch VersionMatchStrategy

	// VersionFailure says what becomes of the others. Zero means RejectMismatch.
	VersionFailure VersionFailureStrategy

	// UnknownFunctionTimeout is how long an instance that has not begun, or an
	// operation of an entity that does not exist, waits for a worker that knows its
	// function before it fails, at most a year: in a rolling deployment one may come.
	// Zero means 10 minutes, or not at all on a hub that can have no other worker.
	// Less than zero means for ever.
	UnknownFunctionTimeout time.Duration

	// FailUnknownFunctions lets instances and entities that have begun fail in the
	// same way, and activities. Otherwise they wait until a worker knows their
	// function, or they are terminated: a wrong deployment does not end what runs.
	FailUnknownFunctions bool

	// HoldNonDeterministic holds back instances whose orchestrator differs from their
	// history, until a worker has code that fits, or they are terminated: a wrong
	// deployment does not end what runs. Otherwise they fail with a
	// [NonDeterminismError].
	HoldNonDeterministic bool

	// CrashFile is the path of a small file in which the worker counts what crashed its
	// process: a panic on a goroutine that a function started, which nothing can recover.
	// Work that crashes it twice before any progress is set aside. So is all work of a
	// function that crashes it five times in a row in spite of progress, until an instance
	// of it is suspended and resumed or the file is deleted. The worker then sets the process's
	// crash output, and adds tracebacklabels=1 to its GODEBUG, so that the texts of panics
	// name instances. Empty means that nothing is counted.
	CrashFile string

	// HTTP says how the requests of [CallHTTP] are made.
	HTTP HTTPConfig

	// Tracing says where spans go. Zero means nowhere.
	Tracing Tracing

	// Metrics says where metrics go. Zero means nowhere.
	Metrics Metrics

	// Lifecycle is called when an orchestration has begun or ended on this worker, in
	// the order in which that was stored. It must return at once. It is not called for
	// an instance that ends before any worker runs it, and may not be called for what a
	// process stored just before it died. Nil means no calls.
	Lifecycle func(LifecycleEvent)

	// Logger gets the worker's log, and that of orchestrators. Nil means
	// slog.Default().
	Logger *slog.Logger
}

// WithDefaults returns a copy of c in which fields that are zero have their
// defaults.
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

// Validate returns an error that names the first field of c, after
// [Config.WithDefaults], whose value is out of its range.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if c.MaxPayloadBytes < 0 {
		return fmt.Errorf("MaxPayloadBytes is %d, must be above 0", c.MaxPayloadBytes)
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
			return fmt.Errorf("%s is %d, must be 1 to %d", f.field, f.value, f.max)
		}
	}
	if _, ok := matchNames[c.VersionMatch]; !ok {
		return fmt.Errorf("VersionMatch is %d, must be MatchCurrentOrOlder, MatchStrict or MatchNone", c.VersionMatch)
	}
	if _, ok := failureNames[c.VersionFailure]; !ok {
		return fmt.Errorf("VersionFailure is %d, must be RejectMismatch or FailMismatch", c.VersionFailure)
	}
	times := []struct {
		field      string
		value, max time.Duration
	}{
		{"EntityReorderWindow", max(c.EntityReorderWindow, 0), 365 * 24 * time.Hour},
		{"ExtendedSessionIdle", c.ExtendedSessionIdle, 24 * time.Hour},
		{"ShutdownTimeout", c.ShutdownTimeout, time.Hour},
		{"EpisodeWarnAfter", c.EpisodeWarnAfter, time.Hour},
		{"StallTimeout", c.StallTimeout, time.Hour},
		{"UnknownFunctionTimeout", max(c.UnknownFunctionTimeout, 0), 365 * 24 * time.Hour},
	}
	for _, f := range times {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("%s is %v, must be above 0 and at most %v", f.field, f.value, f.max)
		}
	}
	return c.HTTP.validate()
}

// lifecycle returns the dispatcher's callback, nil if there is no listener.
func (c Config) lifecycle() func(dispatch.LifecycleEvent) {
	if c.Lifecycle == nil {
		return nil
	}
	return func(e dispatch.LifecycleEvent) {
		c.Lifecycle(LifecycleEvent{Name: e.Name, InstanceID: InstanceID(e.InstanceID), Status: e.Status, Reason: e.Reason})
	}
}

// checkVersion says why a worker does not take an instance of a version, nil if
// it does.
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
