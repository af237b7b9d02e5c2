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
	// Orchestrator returns the orchestrator with the given name for instances of
	// a version, which is empty if they have none.
	Orchestrator(name, version string) (replay.Code, bool)

	// Activity returns the activity with the given name. It may panic.
	Activity(name string) (func(ctx context.Context, input *string) (*string, error), bool)
}

// Config says how a [Dispatcher] works. All fields but CheckVersion, Tracer,
// Meter and Lifecycle must be set; package durable knows the defaults.
type Config struct {
	MaxConcurrentActivities    int
	MaxConcurrentOrchestrators int
	Entities                   EntityConfig

	// MaxPayload is the largest total size of the payloads of the instances that run at
	// once, in bytes, and of the inputs of the activities. One of each always runs. Zero
	// means DefaultMaxPayload.
	MaxPayload int64

	ExtendedSessions    bool
	ExtendedSessionIdle time.Duration

	ShutdownTimeout  time.Duration // from the end of Run's context to that of activities' contexts
	EpisodeWarnAfter time.Duration // how long an orchestrator may run without progress before it is reported
	StallTimeout     time.Duration // and before it is given up

	// CheckVersion says why the worker does not take instances of a version. Nil
	// takes all.
	CheckVersion func(version string) error
	FailMismatch bool // fail instances that CheckVersion refuses, rather than hand them back

	// FailUnknownAfter is how long an instance that has not begun waits for a worker
	// that has its function before it fails. Zero: for ever. Negative: not at all.
	// FailUnknownBegun fails instances that have begun, too.
	FailUnknownAfter time.Duration
	FailUnknownBegun bool

	// HoldDifferent holds instances back whose code does something else than their
	// history has, rather than fail them.
	HoldDifferent bool

	// Waiting, if not nil, records what waits for functions that this worker lacks or
	// does not run.
	Waiting *Waiting

	// Stalls, if not nil, records the instances whose code was given up.
	Stalls *Stalls

	// Crashes, if not nil, knows what is set aside because it crashed the process.
	Crashes *crashes.Ledger

	// StoreInputs keeps the inputs of activities and children in histories, where
	// tools show them. Replay does not need them.
	StoreInputs bool

	Tracer *tracing.Tracer // nil writes no spans
	Meter  *metering.Meter // nil counts nothing

	// Lifecycle is called when an instance begins or ends. It must return at once.
	Lifecycle func(LifecycleEvent)

	Logger *slog.Logger
	Now    func() time.Time // the clock that episodes and events are dated by
	NewID  func() string    // returns a new ID for an entity's execution
}

// DefaultMaxPayload is the default of [Config.MaxPayload], 128 MiB.
const DefaultMaxPayload int64 = 128 << 20

func (c Config) maxPayload() int64 { return cmp.Or(c.MaxPayload, DefaultMaxPayload) }

func (c Config) unknown() unknownPolicy { return unknownPolicy{c.FailUnknownAfter, c.FailUnknownBegun} }
