package sim

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Platform is a hub under simulation.
type Platform interface {
	// Client returns a client of the hub. Its requests fail only if Plan.Cuts or Plan.Inside is set.
	Client() provider.Client

	// Caller returns a client of the hub whose requests may fail, and a function that kills the client's
	// process.
	Caller(name string) (c provider.Client, kill func(), err error)

	// Worker returns a new worker process, whose clock is ahead by skew.
	Worker(name string, skew time.Duration) (Process, error)

	// Context returns a context for the actions of the named worker or client. Its random numbers are derived
	// from the seed.
	Context(ctx context.Context, name string) context.Context

	// Status returns the status of an instance without any effect on the simulation.
	Status(id string) (history.RuntimeStatus, error)

	// KeepsOrder reports whether messages of one client to an instance always arrive in order.
	KeepsOrder() bool

	// Pending describes the pending messages and activities, including hidden ones.
	Pending() []string

	// Settle waits until all background work of the workers, which have stopped, has ended.
	Settle()

	// Stored describes the stored data of instances.
	Stored() []string

	// Audit returns the faults in the records of instances other than their histories.
	Audit() []string

	// Inspect returns the faults that only the platform can detect. runs are the activities that ran.
	Inspect(runs []ActivityRun) []string
}

// Process is the process of a worker.
type Process interface {
	provider.Worker

	// Dead returns a channel that is closed when the process dies.
	Dead() <-chan struct{}
	// Kill ends the process immediately.
	Kill()
	// Freeze stops the process for d.
	Freeze(d time.Duration)
	// FrozenSince returns the time of the first freeze; ok is false if there was none.
	FrozenSince() (at time.Time, ok bool)
}

// ActivityRun is one run of an activity. At is the time since the start of the simulation.
//
// IsStep is set for a run of a durable step.
type ActivityRun struct {
	IsStep bool

	InstanceID string
	TaskID     int
	Key        string
	Worker     string
	At         time.Duration
	// Until is the time at which the run ended, its worker died or its worker was frozen. The worker had the
	// activity until then.
	Until time.Duration
}
