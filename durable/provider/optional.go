package provider

import (
	"context"
	"errors"
	"time"
)

// ErrNotSupported says that a hub's provider cannot do what was asked for. A
// [Client] that wraps another and implements an optional interface that the
// other does not have returns it.
var ErrNotSupported = errors.New("not supported by the provider of the task hub")

// A Clock is a [Client] of a hub that keeps its own time. What clients send is
// dated by it rather than by time.Now.
type Clock interface {
	// Now returns the hub's time.
	Now() time.Time
}

// A Purger is a [Client] that can remove instances for good.
type Purger interface {
	// Purge deletes all that is stored of an instance: its state, its history,
	// its payloads. It does not look at the instance's status; whoever calls it
	// has, and seen is what they saw, or nil if anything may go. An instance stays,
	// and the error is [ErrInstanceChanged], if it is not the same as it was seen,
	// as [InstanceState.SameAs] has it, or if it is an entity and messages for it
	// would go too. An execution that somebody begins while the purge is under way
	// is spared, and the error says so. Purge returns [ErrInstanceNotFound] if there
	// is nothing.
	Purge(ctx context.Context, id string, seen *InstanceState) error
}

// ErrInstanceChanged says that an instance is not what it was when it was looked
// at, so that nothing was done.
var ErrInstanceChanged = errors.New("instance has changed since it was looked at")

// A Rewinder is a [Client] that can take back the failure of an instance.
type Rewinder interface {
	// Rewind takes the failures out of the history of a failed instance, and of
	// its children that failed, so that what failed is done again while what
	// succeeded is not, and wakes what has something to do. Whoever calls it has seen
	// that the instance has failed. If the instance was started anew since, the error is
	// [ErrInstanceChanged], or [ErrInstanceNotFound], as it is if there is no history.
	Rewind(ctx context.Context, id, reason string) error
}

// A Sole is a [Worker] that knows whether others can work on its hub at the same
// time. Of one that is none it is assumed that they can.
type Sole interface {
	// IsSole reports that no other worker can.
	IsSole() bool
}
