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
	Owner     string // the worker of the partition; "" if there is none
	Before    int    // messages that are to be taken before its own
	IsExact   bool   // whether Before is
	// StartMissing reports that the instance seems to have no start message. The worker that
	// owns the partition sends the start again.
	StartMissing bool
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
	if p.StartMissing {
		return fmt.Sprintf("its start message is missing; the owner of %s sends it again within 90 seconds, %s", where, owner)
	}
	return fmt.Sprintf("%s has %s%d messages before it, %s", where, about, p.Before, owner)
}

// UsageReporter is a [Client] that counts how often this process turns to the storage.
type UsageReporter interface {
	// Usage returns what was counted since the hub was opened, for each part of the
	// storage. It asks nobody.
	Usage() []Usage
}

// Usage is how often a process has turned to a part of the storage.
type Usage struct {
	Part     string // such as "table", or "file"
	Requests int64  // of a file, the writes that made something durable
	// Errors are the requests that had no answer or were refused, but not those that found
	// a thing changed, missing or there already. It is -1 if they are not counted.
	Errors int64
}

// Rewinder is a [Client] that can rewind failed instances.
type Rewinder interface {
	// Rewind removes the failures from the history of a failed instance, and of its
	// failed children, so that only what failed is done again, and wakes them. The
	// caller has seen that the instance has failed, or that it is Pending: Rewind then
	// completes a rewind that was interrupted. If the instance was started again since, or
	// was only started, the error is [ErrInstanceChanged] or [ErrInstanceNotFound]. The
	// latter is also the error of an instance without history.
	Rewind(ctx context.Context, id, reason string) error
}

// Exact is a [Worker] that knows whether its hub delivers what instances send in order and
// once, beyond what package provider promises. What clients send may come again. providertest
// checks it of those that say they do. Entities on such a hub remember hardly anything of who
// has called them.
type Exact interface {
	// IsExact reports that the hub always promises these, and that nothing was imported into
	// it: what comes from another hub may have been delivered there, and come again.
	//
	//  1. Messages of one sender to one instance are delivered in the order in which they
	//     were sent. Those that were handed out and not committed come again before
	//     later ones, also after a worker has died.
	//  2. A checkpoint is durable as a whole: its events, that its messages are sent, and
	//     that those which it took are not delivered any more. What a checkpoint would
	//     have sent that did not become durable is not delivered, and what one has sent
	//     is delivered until a checkpoint takes it, which only one does.
	IsExact() bool
}

// Sole is a [Worker] that knows whether its hub can have other workers at the same
// time. Hubs of other providers are assumed to have them.
type Sole interface {
	// IsSole reports that no other worker can.
	IsSole() bool
}
