package provider

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// OrchestrationWorkItem is an instance with messages, locked for an episode.
type OrchestrationWorkItem struct {
	// Instance is the execution that History belongs to or, for a new
	// execution, the one that the start message names.
	Instance history.OrchestrationInstance
	// History holds the committed events of the execution; it is empty for one
	// that has not begun.
	History []history.Event
	// Messages are the new messages, at least one. The ExecutionStarted that begins the
	// execution, if it is among them, is first.
	Messages []TaskMessage
	// OwnedSince is when this process became the owner of the instance. Earlier events
	// of its history are of another process, or of an earlier ownership. Zero means
	// that there are no such events.
	OwnedSince time.Time
	// Session is the lock. The caller must call Release at the end, after errors,
	// too.
	Session Session
}

// Session is the lock on an instance. Its methods are called by one goroutine.
type Session interface {
	// Commit makes cp durable and deletes the messages in flight: those of the work
	// item and of later calls of Next. The error is [ErrSessionLost] if another worker
	// has the instance. After any error the caller must call Abandon.
	Commit(ctx context.Context, cp *Checkpoint) error

	// Abandon returns the messages in flight to the hub, which delivers them again
	// after a delay that grows with the number of attempts, or sooner if cause is a
	// [HeldError]. cause is logged.
	Abandon(ctx context.Context, cause error) error

	// Next waits up to idle for more messages for the same execution, which goes on
	// without another read of its history (an extended session). It returns none after
	// that time, or if the provider needs the lock; the caller then calls Release.
	Next(ctx context.Context, idle time.Duration) ([]TaskMessage, error)

	// Release releases the lock, and abandons messages that are still in flight.
	Release(ctx context.Context) error
}

// Settler is a [Session] that knows whether messages that it has committed can be
// delivered again. For other sessions it is assumed that they cannot.
type Settler interface {
	// Settled reports whether all messages of the last Commit are known to be deleted,
	// so that none of them is ever delivered again.
	Settled() bool
}

// ActivityWorkItem is an activity to run.
type ActivityWorkItem struct {
	// Instance is the execution that waits for the result.
	Instance history.OrchestrationInstance
	Task     *history.TaskScheduled
	// Attempt counts the deliveries of this item, from 1. More than one means that an
	// earlier run was not completed. One does not exclude an earlier run: a process may
	// have run the item without a delivery, and crashed.
	Attempt int
	// Lock needs one successful call of Complete, or one of Abandon.
	Lock ActivityLock
}

// HeldError is the cause of abandoning work that is to be delivered again at a given
// time, whatever the number of attempts.
type HeldError struct {
	Cause error
	Until time.Time
}

func (e *HeldError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *HeldError) Unwrap() error { return e.Cause }

// AbandonDelay returns the delay after which abandoned work is delivered again: the
// given one, or less if cause is a [HeldError].
func AbandonDelay(cause error, now time.Time, delay time.Duration) time.Duration {
	if held, ok := errors.AsType[*HeldError](cause); ok && held.Until.After(now) {
		return min(delay, held.Until.Sub(now))
	}
	return delay
}

// ActivityLock is the lock on an activity.
type ActivityLock interface {
	// Complete sends result, a *history.TaskCompleted or *history.TaskFailed, to the
	// instance that scheduled the activity, and then deletes the work item.
	Complete(ctx context.Context, result history.Event) error

	// Abandon returns the work item to the hub, as [Session] does.
	Abandon(ctx context.Context, cause error) error
}
