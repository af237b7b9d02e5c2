package provider

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// OrchestrationWorkItem is an instance with new messages, locked for one episode.
type OrchestrationWorkItem struct {
	// Instance is the execution that History belongs to. For a new execution it is the one
	// named by the start message.
	Instance history.OrchestrationInstance
	// History holds the committed events of the execution. It is empty before the first
	// episode.
	History []history.Event
	// Messages holds the new messages, at least one. The ExecutionStarted that begins the
	// execution comes first if it is included.
	Messages []TaskMessage
	// OwnedSince is the time at which this process became the owner of the instance. Earlier
	// events in History were written by another process or in an earlier period of ownership.
	// Zero means that History contains no such events.
	OwnedSince time.Time
	// Session is the lock. The caller must always call Release, also after errors.
	Session Session
}

// Session is the lock on an instance. Its methods must be called from one goroutine.
type Session interface {
	// Commit makes cp durable and deletes the messages in flight: the messages of the work item
	// and of later Next calls. The error is [ErrSessionLost] if another worker has taken over
	// the instance. After any error the caller must call Abandon.
	Commit(ctx context.Context, cp *Checkpoint) error

	// Abandon returns the messages in flight to the hub. The hub redelivers them after a delay
	// that grows with the number of attempts, or earlier if cause is a [RetryAtError]. cause is
	// logged.
	Abandon(ctx context.Context, cause error) error

	// Next waits up to idle for more messages for the same execution, so that the session
	// continues without reading the history again (an extended session). It returns no messages
	// after idle, or if the provider needs the lock. The caller then calls Release. If the last
	// checkpoint has StepsRunning, messages to another execution wait: the provider does not need
	// the lock for them. Next may be called before the first Commit.
	Next(ctx context.Context, idle time.Duration) ([]TaskMessage, error)

	// Release releases the lock. It abandons messages that are still in flight.
	Release(ctx context.Context) error
}

// Settler is a [Session] that knows whether committed messages can be redelivered. If a session
// does not implement Settler, the engine assumes that they are never redelivered.
type Settler interface {
	// Settled reports whether all messages consumed by the last Commit are known to be deleted.
	// They are then never redelivered.
	Settled() bool
}

// ActivityWorkItem is an activity to run.
type ActivityWorkItem struct {
	// Instance is the execution that scheduled the activity and waits for its result.
	Instance history.OrchestrationInstance
	Task     *history.TaskScheduled
	// Attempt counts the deliveries of this item from 1. A value above 1 means that an earlier
	// run was not completed. A value of 1 does not exclude an earlier run: the process that
	// scheduled the activity may have run it directly, without a delivery, and crashed.
	Attempt int
	// Lock must be ended by a successful Complete or by Abandon.
	Lock ActivityLock
}

// RetryAtError is a cause for Abandon that sets the latest time of the redelivery. The work is
// redelivered at At, or earlier if the normal delay ends earlier.
type RetryAtError struct {
	Cause error
	At    time.Time
}

// Error returns the message of the cause.
func (e *RetryAtError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *RetryAtError) Unwrap() error { return e.Cause }

// AbandonDelay returns the delay until abandoned work is redelivered. The result is delay
// unless cause is a [RetryAtError]. In that case the result is at most the time from now to
// At, or 0 if At has passed.
func AbandonDelay(cause error, now time.Time, delay time.Duration) time.Duration {
	if held, ok := errors.AsType[*RetryAtError](cause); ok {
		return min(delay, max(0, held.At.Sub(now)))
	}
	return delay
}

// ActivityLock is the lock on an activity.
type ActivityLock interface {
	// Complete sends result to the instance that scheduled the activity and then deletes the
	// work item. result is a *history.TaskCompleted or a *history.TaskFailed.
	Complete(ctx context.Context, result history.Event) error

	// Abandon returns the work item to the hub, as [Session.Abandon] does.
	Abandon(ctx context.Context, cause error) error
}
