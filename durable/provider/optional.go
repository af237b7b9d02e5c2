package provider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotSupported is the error of an operation that a hub's provider does not
// support. A [Client] that wraps another one returns it for an optional interface
// that the other one does not implement.
var ErrNotSupported = errors.New("not supported by the provider of the task hub")

// Clock is a [Client] of a hub with its own time. Messages of clients have timestamps
// of it, not of time.Now.
type Clock interface {
	// Now returns the hub's time.
	Now() time.Time
}

// Purger is a [Client] that can delete instances.
type Purger interface {
	// Purge deletes an instance: its state, its history, its payloads. It does not
	// check the instance's status. If seen is not nil, the instance must still be the
	// same, as [InstanceState.SameAs] reports, and an entity must have no messages;
	// otherwise nothing is deleted, and the error is [ErrInstanceChanged]. An execution
	// that begins during the purge is not deleted, and the error says so. Purge returns
	// [ErrInstanceNotFound] if there is no instance.
	Purge(ctx context.Context, id string, seen *InstanceState) error
}

// ErrInstanceChanged is the error of an operation on an instance that has changed
// since the caller read its state. The operation had no effect.
var ErrInstanceChanged = errors.New("instance has changed since it was read")

// Placer is a [Client] that can tell where an instance stands that no worker has begun with.
type Placer interface {
	// Place returns the place of such an instance.
	Place(ctx context.Context, id string) (Place, error)
}

// Place is where an instance stands that no worker has begun with.
type Place struct {
	Partition int    // -1 in a hub without partitions
	Owner     string // who works on the partition; "" if nobody does
	Before    int    // messages that are to be taken before its own
	IsExact   bool   // whether Before is
}

// String returns the place in words.
func (p Place) String() string {
	where, about, owner := fmt.Sprintf("partition %d", p.Partition), "about ", "nobody works on it"
	if p.Partition < 0 {
		where = "the hub"
	}
	if p.IsExact {
		about = ""
	}
	if p.Owner != "" {
		owner = "its owner is " + p.Owner
	}
	return fmt.Sprintf("%s has %s%d messages before it, %s", where, about, p.Before, owner)
}

// Rewinder is a [Client] that can rewind failed instances.
type Rewinder interface {
	// Rewind removes the failures from the history of a failed instance, and of its
	// failed children, so that only what failed is done again, and wakes them. The
	// caller has seen that the instance has failed. If it was started again since, the
	// error is [ErrInstanceChanged] or [ErrInstanceNotFound]. The latter is also the
	// error of an instance without history.
	Rewind(ctx context.Context, id, reason string) error
}

// Sole is a [Worker] that knows whether its hub can have other workers at the same
// time. Hubs of other providers are assumed to have them.
type Sole interface {
	// IsSole reports that no other worker can.
	IsSole() bool
}
