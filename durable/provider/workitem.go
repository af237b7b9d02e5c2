package provider

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An OrchestrationWorkItem is an instance that has something to do.
type OrchestrationWorkItem struct {
	// Instance is the execution that History belongs to or, for a new
	// execution, the one that the start message names.
	Instance history.OrchestrationInstance
	// History holds the committed events of the execution; it is empty for one
	// that has not begun.
	History []history.Event
	// Messages are what arrived since, never empty. The ExecutionStarted that
	// begins the execution, if it is among them, is first.
	Messages []TaskMessage
	// OwnedSince is when this process came to own the instance. What its history
	// has of before that is another process's work, or that of a time before this
	// one's had ended. Zero means that there can be no such work.
	OwnedSince time.Time
	// Session holds the lock. The caller must call Release on it at the end,
	// whatever happened.
	Session Session
}

// A Session is an instance's lock and what can be done under it. Its methods
// are called by one goroutine.
type Session interface {
	// Commit makes cp durable and deletes the messages that the work item and
	// later calls of Next handed out. [ErrSessionLost] means that another worker
	// has the instance. After any error the caller must Abandon.
	Commit(ctx context.Context, cp *Checkpoint) error

	// Abandon hands the messages back, to be delivered again after a delay that
	// grows with the number of attempts, or sooner if the cause is a [HeldError].
	// cause is logged.
	Abandon(ctx context.Context, cause error) error

	// Next waits up to idle for more messages for the same execution, so that
	// it can go on without its history being read again (an extended session).
	// It returns none when there are none, or when the provider wants the
	// instance back; the caller then calls Release.
	Next(ctx context.Context, idle time.Duration) ([]TaskMessage, error)

	// Release gives the lock up. Messages that were neither committed nor
	// abandoned are abandoned.
	Release(ctx context.Context) error
}

// A Settler is a [Session] that knows whether what it has committed can come
// again. Of one that is none it is assumed that it cannot.
type Settler interface {
	// Settled reports whether all messages that the last Commit took are known to
	// be deleted, so that none of them is ever handed out again.
	Settled() bool
}

// An ActivityWorkItem is an activity to run.
type ActivityWorkItem struct {
	// Instance is the execution that waits for the result.
	Instance history.OrchestrationInstance
	Task     *history.TaskScheduled
	// Attempt counts the deliveries of this item, from 1. More than one means
	// that an earlier run did not get to the end. One does not mean that there was
	// none: a process may have had the item without a delivery, and died.
	Attempt int
	// Lock must see one call of Complete that succeeds, or one of Abandon.
	Lock ActivityLock
}

// A HeldError is the cause of abandoning what is wanted again at a time, however often it
// was abandoned.
type HeldError struct {
	Cause error
	Until time.Time
}

func (e *HeldError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *HeldError) Unwrap() error { return e.Cause }

// AbandonDelay returns after which delay to deliver again what was abandoned: the given
// one, unless cause is a [HeldError] that wants it sooner.
func AbandonDelay(cause error, now time.Time, delay time.Duration) time.Duration {
	if held, ok := errors.AsType[*HeldError](cause); ok && held.Until.After(now) {
		return min(delay, held.Until.Sub(now))
	}
	return delay
}

// An ActivityLock keeps an activity from other workers while it runs.
type ActivityLock interface {
	// Complete sends result, a *history.TaskCompleted or *history.TaskFailed,
	// to the instance that waits, and then deletes the work item.
	Complete(ctx context.Context, result history.Event) error

	// Abandon hands the work item back, as [Session] does.
	Abandon(ctx context.Context, cause error) error
}
