package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// CanRewind reports whether an instance with this status can be rewound: it has ended, or a crash
// interrupted an earlier rewind. Any other status means that the instance was started or rewound
// again after the caller read its state.
func CanRewind(status history.RuntimeStatus) bool {
	return status.IsTerminal() || status == history.Pending
}

// RewindPlan lists the steps of a rewind. A provider executes them in this order, so that a
// rewind can be repeated after a crash at any point:
//
//  1. Change the histories of Executions, one after the other.
//  2. Store Messages, hidden.
//  3. Set the statuses of Executions to Pending, one after the other.
//  4. Make Messages visible.
//
// If the provider deletes the timers of an execution when the execution ends, it must restore
// the timers that the changed history waits for. Replay does not create them again.
type RewindPlan struct {
	// Executions are the executions to change, children before their parents. The instance to
	// rewind is last.
	Executions []RewoundExecution
	// Messages wake the executions.
	Messages []TaskMessage
}

// RewoundExecution is the change to the history of one execution.
type RewoundExecution struct {
	Instance history.OrchestrationInstance
	// Replace holds the indexes of the events that are replaced by a *history.GenericEvent with
	// the same header, in ascending order.
	Replace []int
	// MarkChildren holds the indexes of *history.SubOrchestrationInstanceCreated events whose
	// child runs again or continues, in ascending order. A provider may mark them in the
	// storage; the events do not change.
	MarkChildren []int
}

// Apply returns a changed copy of the execution's history.
func (x RewoundExecution) Apply(events []history.Event) []history.Event {
	rewound := append([]history.Event(nil), events...)
	for _, at := range x.Replace {
		rewound[at] = &history.GenericEvent{Header: *events[at].Head()}
	}
	return rewound
}

// PlanRewind plans the rewind of an instance. load returns the history of an instance's current
// execution, empty if the instance has none. at is the timestamp of the messages. The error is
// [ErrInstanceNotFound] if the instance has no history.
//
// The error is [ErrLocksReleased] if the end of the instance, or of a child to rewind, released
// locks. DurableTask rewinds such an instance, and replay then fails: the history has the release,
// but the code waits for the repeated activity (DurableTask.Core/TaskOrchestrationContext.cs,
// HandleEventSentEvent).
//
// As in DurableTask, the plan replaces the failed end, the failures of activities and children,
// and the scheduling of the failed activities. Replay then schedules these activities again.
// Failed children are rewound too, and their results are sent again
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, RewindHistoryAsync). The plan
// differs where DurableTask leaves an instance that cannot continue:
//
//  1. A failure that the orchestrator handled by other decisions, such as a retry, stays,
//     because those decisions stay. Of a retry, only the last attempt is replaced.
//  2. Messages that arrived after the instance had ended are lost. Therefore pending
//     activities are scheduled again, overdue timers are created again, and the results of
//     children are sent again.
//  3. A terminated child continues. A child that was purged, or whose ID belongs to another
//     instance, is started again.
func PlanRewind(ctx context.Context, id, reason string, at time.Time, load func(ctx context.Context, id string) ([]history.Event, error)) (*RewindPlan, error) {
	p := &rewindPlanner{load: load, reason: reason, at: at, seen: map[string]bool{id: true}}
	events, err := load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load instance %q: %w", id, err)
	}
	x := read(events)
	if x.start == nil {
		return nil, ErrInstanceNotFound
	}
	if x.end == nil {
		// An earlier rewind was interrupted after it had changed the history.
		p.plan.Executions = append(p.plan.Executions, RewoundExecution{Instance: x.start.Instance})
		p.wake(x)
	}
	if err := p.rewind(ctx, x); err != nil {
		return nil, err
	}
	return &p.plan, nil
}

// rewindPlanner plans the rewind of an instance and its descendants.
type rewindPlanner struct {
	load   func(ctx context.Context, id string) ([]history.Event, error)
	reason string
	at     time.Time
	seen   map[string]bool // instances that are already planned
	plan   RewindPlan
}

// rewind adds the children of x that must run again and then, if x has ended, x itself.
func (p *rewindPlanner) rewind(ctx context.Context, x *recordedExecution) error {
	changes := rewindChanges{}
	if x.end != nil {
		if x.heldLocks() {
			return ErrLocksReleased
		}
		changes = x.rewound(p.at)
	}
	waits := false
	for _, c := range x.children(changes) {
		became, err := p.rewindChild(ctx, x, c)
		if err != nil {
			return err
		}
		switch became {
		case childAwaited:
			if c.failed {
				changes.markChild(c.at)
				waits = true
			}
		case childGone:
			if c.failed && x.end != nil {
				changes.replace(c.at)
				changes.again = true
			}
		}
	}
	if x.end == nil {
		return nil
	}
	p.plan.Executions = append(p.plan.Executions, RewoundExecution{
		Instance: x.start.Instance, Replace: changes.replacedBelow(len(x.events)), MarkChildren: changes.markedBelow(len(x.events)),
	})
	if changes.again || !waits {
		p.wake(x)
	}
	return nil
}

// wake sends a message that makes the orchestrator of x run.
func (p *rewindPlanner) wake(x *recordedExecution) {
	p.plan.Messages = append(p.plan.Messages, TaskMessage{
		Event:  &history.GenericEvent{Header: history.NewHeader(p.at), Data: &p.reason},
		Target: history.OrchestrationInstance{InstanceID: x.start.Instance.InstanceID},
	})
}

// childFate is the outcome for a child whose result the parent does not have.
type childFate int

const (
	childAwaited childFate = iota // the result will arrive
	childGone                     // the child does not exist
)

// rewindChild makes sure that the result of a child arrives, if the child exists.
func (p *rewindPlanner) rewindChild(ctx context.Context, parent *recordedExecution, c recordedChild) (childFate, error) {
	if p.seen[c.event.InstanceID] {
		return childGone, nil
	}
	events, err := p.load(ctx, c.event.InstanceID)
	if err != nil {
		return childGone, fmt.Errorf("load child %q of instance %q: %w", c.event.InstanceID, parent.start.Instance.InstanceID, err)
	}
	x := read(events)
	if x.start == nil || x.start.Parent == nil ||
		x.start.Parent.Instance != parent.start.Instance || x.start.Parent.TaskScheduleID != c.event.EventID {
		return childGone, nil
	}
	p.seen[c.event.InstanceID] = true
	switch {
	case x.end == nil:
		p.wake(x) // an earlier rewind may have been interrupted before this step
		return childAwaited, nil
	case x.end.Status == history.Completed:
		p.plan.Messages = append(p.plan.Messages, TaskMessage{
			Event: &history.SubOrchestrationInstanceCompleted{
				Header: history.NewHeader(p.at), TaskScheduledID: c.event.EventID, Result: x.end.Result,
			},
			Target: parent.start.Instance,
		})
		return childAwaited, nil
	}
	if err := p.rewind(ctx, x); err != nil {
		return childAwaited, fmt.Errorf("child %q: %w", c.event.InstanceID, err)
	}
	return childAwaited, nil
}

// rewindChanges collects the changes to one history, by index.
type rewindChanges struct {
	replaced, marks map[int]bool
	again           bool // the orchestrator has to decide something again
}

func (c *rewindChanges) replace(positions ...int) {
	if c.replaced == nil {
		c.replaced = make(map[int]bool)
	}
	for _, at := range positions {
		c.replaced[at] = true
	}
}

func (c *rewindChanges) markChild(at int) {
	if c.marks == nil {
		c.marks = make(map[int]bool)
	}
	c.marks[at] = true
}

func (c *rewindChanges) replacedBelow(n int) []int { return sortedBelow(c.replaced, n) }
func (c *rewindChanges) markedBelow(n int) []int   { return sortedBelow(c.marks, n) }

// sortedBelow returns the elements of set in ascending order. All are below n.
func sortedBelow(set map[int]bool, n int) []int {
	var list []int
	for at := range n {
		if set[at] {
			list = append(list, at)
		}
	}
	return list
}
