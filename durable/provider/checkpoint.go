package provider

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// A Checkpoint is everything that one episode must make durable.
type Checkpoint struct {
	// Instance is the execution that NewEvents belong to. After continue-as-new
	// its ExecutionID differs from the work item's.
	Instance history.OrchestrationInstance

	// NewEvents are appended to the history; if ContinuedAsNew, they are the
	// whole history of a new execution, which takes the old one's place.
	// If there are none, nothing was decided: the messages that were handed out
	// are deleted, once those in Messages are sent.
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
	// SendLast has Messages sent once NewEvents are durable, and before what was
	// handed out is deleted: whoever reads them can rely on what was written, and
	// can find in NewEvents what may have to be sent again. Otherwise they are sent
	// before, and nobody has to send them again.
	SendLast bool

	// CustomStatus is the instance's custom status after the episode, as JSON
	// text; nil if it has none.
	CustomStatus *string
}
