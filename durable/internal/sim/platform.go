package sim

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A Platform is a hub under simulation.
type Platform interface {
	// Client returns the hub as clients have it. Nothing disturbs them.
	Client() provider.Client

	// Caller returns the hub as a client has it of which requests may go wrong, and
	// what ends that one's process.
	Caller(name string) (c provider.Client, kill func(), err error)

	// Worker returns the hub as a new process has it, whose clock is ahead by
	// skew.
	Worker(name string, skew time.Duration) (Process, error)

	// Context returns a context for what a worker or a client does, below which
	// chance comes from the seed.
	Context(ctx context.Context, name string) context.Context

	// Status returns how far an instance is, without disturbing anything.
	Status(id string) (history.RuntimeStatus, error)

	// KeepsOrder reports whether what one client sends to an instance comes in that
	// order whatever happens.
	KeepsOrder() bool

	// Pending returns what is on its way to workers, hidden or not, in words.
	Pending() []string

	// Settle waits until nothing is under way any more that workers have begun,
	// all of which have stopped.
	Settle()

	// Stored returns what is stored of instances, in words.
	Stored() []string

	// Audit returns what is wrong with what is recorded of instances besides their
	// histories.
	Audit() []string

	// Inspect returns what went wrong that only the platform can tell, given
	// which activities ran.
	Inspect(runs []ActivityRun) []string
}

// A Process is a worker of the hub.
type Process interface {
	provider.Worker

	// Dead returns a channel that is closed when the process is dead.
	Dead() <-chan struct{}
	// Kill ends the process without its being able to do anything.
	Kill()
	// Freeze keeps it from getting on for d.
	Freeze(d time.Duration)
	// FrozenSince returns when it was frozen first; ok is false if it never was.
	FrozenSince() (at time.Time, ok bool)
}

// An ActivityRun is one run of an activity: for whom, what, by which worker and
// how long after the simulation began.
type ActivityRun struct {
	InstanceID string
	TaskID     int
	Key        string
	Worker     string
	At         time.Duration
	// Until is when it ended, its worker died or nothing of what that one did came
	// through any more: so long the task was the worker's.
	Until time.Duration
}
