package dispatch

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
)

// Functions finds functions by their wire names.
type Functions interface {
	// Orchestrator returns the orchestrator with the given name for instances of the given
	// version. Version is empty for instances without one.
	Orchestrator(name, version string) (replay.Code, bool)

	// Activity returns the activity with the given name. The activity may panic.
	Activity(name string) (func(ctx context.Context, input *string) (*string, error), bool)
}

// Config configures a [Dispatcher]. All fields except CheckVersion, Tracer, Meter and Lifecycle
// must be set, unless their comment allows a zero value. Package durable provides the defaults.
type Config struct {
	MaxConcurrentActivities    int
	MaxConcurrentOrchestrators int
	Entities                   EntityConfig

	// MaxPayload limits the total size, in bytes, of the payloads of instances that run at the
	// same time. The inputs of activities have a separate limit of the same size. One of each
	// kind always runs, whatever its size. Payloads of up to 256 KiB do not count. Zero means
	// DefaultMaxPayload.
	MaxPayload int64

	ExtendedSessions    bool
	ExtendedSessionIdle time.Duration

	ShutdownTimeout  time.Duration // time from the end of Run's context to the end of the activities' contexts
	EpisodeWarnAfter time.Duration // time without progress after which an orchestrator is reported
	StallTimeout     time.Duration // time without progress after which an orchestrator is abandoned

	// CheckVersion returns the reason why the worker does not accept instances of a version, or
	// nil if it accepts them. A nil function accepts all versions.
	CheckVersion        func(version string) error
	FailVersionMismatch bool // fail instances that CheckVersion rejects, instead of holding them back

	// FailUnknownAfter is the time after which an instance that has not started fails because no worker has
	// its function. Zero means never; a negative duration means immediately. FailUnknownStarted also fails
	// instances that have started.
	FailUnknownAfter   time.Duration
	FailUnknownStarted bool

	// HoldNonDeterministic holds back instances whose code does not match their history,
	// instead of failing them.
	HoldNonDeterministic bool

	// Blocked, if not nil, records the work that waits for functions that this worker lacks or
	// does not run.
	Blocked *BlockedFunctions

	// Stalls, if not nil, records the instances whose code was abandoned.
	Stalls *Stalls

	// Crashes, if not nil, records the work that is set aside because it crashed the process.
	Crashes *crashes.Ledger

	// StoreInputs stores the inputs of activities and children in histories, for diagnostics.
	// Replay does not need them.
	StoreInputs bool

	Tracer *tracing.Tracer // nil disables tracing
	Meter  *metering.Meter // nil disables metrics

	// Lifecycle is called when an instance starts or ends. It must return immediately.
	Lifecycle func(LifecycleEvent)

	Logger *slog.Logger
	Now    func() time.Time // the clock for the times of episodes and events
	NewID  func() string    // returns a new execution ID for an entity
}

// DefaultMaxPayload is the default of [Config.MaxPayload]: 128 MiB.
const DefaultMaxPayload int64 = 128 << 20

func (c Config) maxPayload() int64 { return cmp.Or(c.MaxPayload, DefaultMaxPayload) }

func (c Config) unknown() unknownPolicy {
	return unknownPolicy{c.FailUnknownAfter, c.FailUnknownStarted}
}
