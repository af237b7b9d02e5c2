package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// Checkpoint is everything that one episode must make durable.
type Checkpoint struct {
	// Instance is the execution that NewEvents belong to. After continue-as-new its ExecutionID
	// differs from the work item's.
	Instance history.OrchestrationInstance

	// NewEvents are appended to the history. If ContinuedAsNew is set, they are the whole
	// history of a new execution that replaces the current one. Without NewEvents the episode
	// decided nothing: the provider sends Messages and then deletes the messages in flight.
	NewEvents      []history.Event
	ContinuedAsNew bool

	// Activities are TaskScheduled events that any worker may run.
	Activities []TaskMessage
	// Timers are TimerFired events for this instance. Each is delivered at its FireAt.
	Timers []TaskMessage
	// Messages are for instances, including this one: starts of children, results for a parent,
	// raised events, and wake-ups of polls ([WakePolls]). [DelayedUntil] returns the time before
	// which a message must not be delivered.
	Messages []TaskMessage
	// SendLast makes the provider send Messages after NewEvents are durable and before it
	// deletes the messages in flight. Receivers can then rely on NewEvents. After a crash,
	// NewEvents show which messages may have to be sent again. Without SendLast, Messages are
	// sent before NewEvents are durable, and need not be sent again.
	SendLast bool
	// HideUntilDeleted applies to a provider that implements SendLast in three steps: it
	// enqueues Messages hidden, makes NewEvents durable, and makes Messages visible. With
	// HideUntilDeleted the provider deletes the messages in flight before the third step,
	// otherwise after it.
	HideUntilDeleted bool

	// StepsRunning means that the instance has steps in flight. No message announces their
	// results, so the provider keeps a durable message that wakes the instance after a crash: a
	// duplicate of the execution's start, or a message made by [WakeSteps]. The next checkpoint
	// without StepsRunning, of this session or of another worker, makes the provider delete the
	// message. Both rules also apply to a checkpoint without NewEvents.
	StepsRunning bool

	// CustomStatus is the instance's custom status after the episode, as JSON text. It is nil
	// if no custom status is set.
	CustomStatus *string
	// KeepCustomStatus means that the episode ran without the orchestrator's code. The instance
	// then keeps its custom status, and CustomStatus is ignored.
	KeepCustomStatus bool
}
