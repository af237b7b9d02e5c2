package provider

import (
	"context"
	"time"
)

// LoadReporter is a [Client] that measures the load of its hub, for scaling.
type LoadReporter interface {
	// Load returns the current load.
	Load(ctx context.Context) (*Load, error)
}

// StepObserver is a [Worker] whose hub reports the steps of its worker in its [Load].
type StepObserver interface {
	// ObserveSteps registers steps, a function that returns the load of this process's steps.
	// The function is safe for concurrent use.
	ObserveSteps(steps func() QueueLoad)
}

// Load is the load of a hub.
type Load struct {
	ControlQueues []QueueLoad // messages for instances, by partition
	WorkItems     QueueLoad   // activities
	Workers       int         // number of workers that own partitions

	// Steps are the steps that run or wait for a slot. The latency is the age of the first step
	// that waits. No message represents a step: only the worker that holds its instance knows it.
	// Steps therefore covers this process and the workers that report their load. Like an activity,
	// a step needs a slot, but only the owner of its partition runs it. More workers than
	// partitions do not run steps sooner.
	Steps QueueLoad

	// Owners holds the ID of each partition's owner, by partition. An ID is "" if the partition
	// has no owner. Owners is nil if the owners are unknown.
	Owners []string
	// Self is the ID of the worker in this process, "" if the process runs no worker.
	Self string
	// Builds maps worker IDs to the programs that they run, as far as the hub knows them.
	Builds map[string]string
}

// QueueLoad is the load of a queue.
type QueueLoad struct {
	Length  int           // approximate; includes messages in flight; 0 if no message waits
	Latency time.Duration // age of the first message
	Stored  int           // approximate; includes hidden messages, such as timers that are not due
}

// Checker is a [Client] that can check the health of its hub.
type Checker interface {
	// Check sends a request to the storage. It returns nil if the hub can accept work,
	// otherwise the reason.
	Check(ctx context.Context) error
	// IsBusy reports whether too many requests wait for the storage; callers should then retry
	// later. It sends no request.
	IsBusy() bool
}

// Primary is a [Client] of a hub that several apps share. Only the workers of the primary app
// run the hub's partitions.
type Primary interface {
	// MakePrimary makes this app the primary app.
	MakePrimary(ctx context.Context) error
}
