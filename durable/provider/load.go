package provider

import (
	"context"
	"time"
)

// A LoadReporter is a [Client] that can tell how much waits in its hub, for
// whoever decides how many workers there should be.
type LoadReporter interface {
	// Load returns what waits now.
	Load(ctx context.Context) (*Load, error)
}

// Load is what waits in a hub.
type Load struct {
	ControlQueues []QueueLoad // messages for instances, by partition
	WorkItems     QueueLoad   // activities
	Workers       int         // that have partitions now
}

// QueueLoad is what waits in a queue.
type QueueLoad struct {
	Length  int           // roughly, with what is being worked on; 0 if nothing waits
	Latency time.Duration // for how long the first has waited
}

// A Checker is a [Client] that can tell how its hub is now.
type Checker interface {
	// Check asks the storage, and returns why the hub cannot take work now, nil if
	// it can.
	Check(ctx context.Context) error
	// IsBusy reports whether so many requests wait for the storage that more had
	// better come later. It asks nobody.
	IsBusy() bool
}

// A Primary is a [Client] of a hub that several apps may share, of which one at
// a time works on it.
type Primary interface {
	// MakePrimary has this app become the one that does.
	MakePrimary(ctx context.Context) error
}
