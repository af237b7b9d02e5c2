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
	// has. An execution that somebody begins under the ID meanwhile is spared, and
	// the error says so. It returns [ErrInstanceNotFound] if there is nothing.
	Purge(ctx context.Context, id string) error
}

// A Rewinder is a [Client] that can take back the failure of an instance.
type Rewinder interface {
	// Rewind takes the failures out of the history of a failed instance, and of
	// its children that failed, so that what failed is done again while what
	// succeeded is not, and wakes what has something to do. It does not look at
	// the instance's status; whoever calls it has. It returns
	// [ErrInstanceNotFound] if there is no history.
	Rewind(ctx context.Context, id, reason string) error
}
