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

// Load is the load of a hub.
type Load struct {
	ControlQueues []QueueLoad // messages for instances, by partition
	WorkItems     QueueLoad   // activities
	Workers       int         // that own partitions

	// Owners are the IDs of the workers that own the partitions, by partition, "" for one
	// without an owner; nil if they are not known.
	Owners []string
	// Self is the ID of the worker in this process, "" if there is none.
	Self string
	// Builds say which programs workers are, by their IDs, as far as the hub knows.
	Builds map[string]string
}

// QueueLoad is the load of a queue.
type QueueLoad struct {
	Length  int           // about, with messages in flight; 0 if none waits
	Latency time.Duration // age of the first message
	Stored  int           // about, with all that are hidden, such as timers that are not due
}

// Checker is a [Client] that can check its hub's health.
type Checker interface {
	// Check asks the storage, and returns why the hub cannot take work now, nil if it
	// can.
	Check(ctx context.Context) error
	// IsBusy reports whether too many requests wait for the storage, so that callers
	// should retry later. It sends no request.
	IsBusy() bool
}

// Primary is a [Client] of a hub that several apps share, of which one at a time is
// active.
type Primary interface {
	// MakePrimary makes this app the active one.
	MakePrimary(ctx context.Context) error
}
