package provider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotSupported means that a hub's provider does not support the operation. A [Client] that
// wraps another client returns it for optional interfaces that the wrapped client does not
// implement.
var ErrNotSupported = errors.New("not supported by the provider of the task hub")

// Clock is a [Client] of a hub with its own time. Messages of clients have timestamps of this
// clock instead of time.Now.
type Clock interface {
	// Now returns the hub's time.
	Now() time.Time
}

// Purger is a [Client] that can delete instances.
type Purger interface {
	// Purge deletes an instance: its state, its history and its payloads. It does not check the
	// instance's status.
	//
	// If seen is not nil, Purge deletes the instance only if its state is unchanged
	// ([InstanceState.SameAs]). An entity must also have no pending messages. Otherwise the
	// error is [ErrInstanceChanged] and nothing is deleted.
	//
	// An execution that begins during the purge is not deleted, and the error reports it. The
	// error is [ErrInstanceNotFound] if the instance does not exist.
	Purge(ctx context.Context, id string, seen *InstanceState) error
}

// ErrInstanceChanged means that an instance has changed since the caller read its state. The
// operation had no effect.
var ErrInstanceChanged = errors.New("instance has changed since it was read")

// QueuePositioner is a [Client] that can report the queue position of an instance that has not
// run yet.
type QueuePositioner interface {
	// QueuePosition returns the position of an instance that has not run yet.
	QueuePosition(ctx context.Context, id string) (QueuePosition, error)
}

// QueuePosition is the queue position of an instance that has not run yet, and the owner of the
// queue.
type QueuePosition struct {
	Partition     int    // -1 in a hub without partitions
	Owner         string // the worker that owns the partition; "" without an owner
	MessagesAhead int    // number of messages ahead of the instance's messages
	IsExact       bool   // MessagesAhead is exact, not an estimate
	// StartMissing means that the start message seems to be lost. The worker that owns the
	// partition sends it again.
	StartMissing bool
}

// String describes the position in words.
func (p QueuePosition) String() string {
	where, about, owner := fmt.Sprintf("partition %d", p.Partition), "about ", "owner: none"
	if p.Partition < 0 {
		where = "the hub"
	}
	if p.IsExact {
		about = ""
	}
	if p.Owner != "" {
		owner = "owner: " + p.Owner
	}
	if p.StartMissing {
		return fmt.Sprintf("its start message is missing; the owner of %s sends it again within 90 seconds; %s", where, owner)
	}
	return fmt.Sprintf("%s has %s%d messages ahead of it; %s", where, about, p.MessagesAhead, owner)
}

// UsageReporter is a [Client] that counts the storage requests of this process.
type UsageReporter interface {
	// Usage returns the counts since the hub was opened, one entry for each part of the
	// storage. It sends no request.
	Usage() []Usage
}

// Usage counts the requests of this process to one part of the storage.
type Usage struct {
	Part     string // for example "table" or "file"
	Requests int64  // for a file, the number of durable writes
	// Errors counts requests without a response and refused requests. It excludes responses
	// that an item has changed, is missing or exists already. It is -1 if errors are not
	// counted.
	Errors int64
}

// Rewinder is a [Client] that can rewind failed instances.
type Rewinder interface {
	// Rewind removes the failures from the history of a failed instance and of its failed
	// children. It then wakes them, so that only the failed work runs again.
	//
	// The caller has checked that the instance has failed or is Pending; for a Pending
	// instance, Rewind completes an interrupted rewind. If the instance was started again since
	// then, or was started and has not run, the error is [ErrInstanceChanged] or
	// [ErrInstanceNotFound]. An instance without a history also fails with ErrInstanceNotFound.
	// The error [ErrLocksReleased] means that Rewind has changed nothing.
	Rewind(ctx context.Context, id, reason string) error
}

// ErrLocksReleased means that an instance cannot be rewound: its orchestrator would continue in
// a critical section whose locks were released when the instance ended.
var ErrLocksReleased = errors.New("the instance held locks until it ended, so it cannot continue; use restart")

// Holder is a [Session] whose lock another process can acquire. If a session does not implement
// Holder, the engine assumes that the lock is held until the session is released.
type Holder interface {
	// Holds reports whether this process has the lock, by its own clock, and may start new work.
	// It is safe for concurrent use.
	Holds() bool
	// Leaves returns the time left for work in flight if the worker hands the instance over, or
	// ok == false if it does not. It is safe for concurrent use.
	Leaves() (left time.Duration, ok bool)
}

// ExactlyOnce is a [Worker] that knows whether its hub delivers the messages of instances in
// order and exactly once. This exceeds the guarantees of package provider. Messages of clients
// may still be redelivered. providertest tests the guarantee if a worker claims it. With the
// guarantee, entities store almost no information about their callers.
type ExactlyOnce interface {
	// IsExactlyOnce reports whether the hub always gives the following guarantees. It is false
	// after an import, because an imported message may already have been delivered in its
	// original hub.
	//
	//  1. Messages of one sender to one instance are delivered in the order in which they were
	//     sent. Messages that were dispatched but not committed are redelivered before later
	//     ones, also after a worker has crashed.
	//  2. A checkpoint commits its events, its outgoing messages and the deletion of the
	//     messages that it consumes as one unit. Messages of a checkpoint that did not become
	//     durable are never delivered. Other messages are delivered until one checkpoint
	//     consumes them; no second checkpoint does.
	IsExactlyOnce() bool
}

// SingleWorker is a [Worker] that knows whether its hub can have other workers at the same
// time. If a worker does not implement SingleWorker, the engine assumes that there can be
// others.
type SingleWorker interface {
	// IsSingleWorker reports whether the hub can have no other worker.
	IsSingleWorker() bool
}
