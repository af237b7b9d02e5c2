package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// Checkpoint is everything that one episode must make durable.
type Checkpoint struct {
	// Instance is the execution that NewEvents belong to. After continue-as-new
	// its ExecutionID differs from the work item's.
	Instance history.OrchestrationInstance

	// NewEvents are appended to the history. If ContinuedAsNew, they are the whole
	// history of a new execution, which replaces the old one. If there are none,
	// nothing was decided: the messages in flight are deleted after Messages are
	// sent.
	NewEvents      []history.Event
	ContinuedAsNew bool

	// Activities are TaskScheduled events for any worker.
	Activities []TaskMessage
	// Timers are TimerFired events for this instance, to be delivered at their
	// FireAt.
	Timers []TaskMessage
	// Messages are for orchestration instances: starts of children, results for
	// a parent, events.
	Messages []TaskMessage
	// SendLast sends Messages after NewEvents are durable, and before the messages in
	// flight are deleted: a receiver can rely on NewEvents, and after a crash they say
	// what may have to be sent again. Otherwise Messages are sent before NewEvents are
	// durable, and need not be sent again.
	SendLast bool
	// HideUntilDeleted is for a provider that stores the Messages of SendLast, hidden, before
	// NewEvents: it deletes the messages in flight before it shows Messages. Otherwise it
	// deletes them afterwards.
	HideUntilDeleted bool

	// CustomStatus is the instance's custom status after the episode, as JSON
	// text; nil if it has none.
	CustomStatus *string
}
