package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// CanRewind reports whether an instance in a status can be rewound: it has ended, or
// a crash interrupted an earlier rewind. An instance that runs was started again, or
// rewound, since the caller read its state.
func CanRewind(status history.RuntimeStatus) bool {
	return status.IsTerminal() || status == history.Pending
}

// RewindPlan is the plan of a rewind. A provider carries it out in this order, so
// that it can be repeated after a crash at any point:
//
//  1. change the histories of Executions, one after the other,
//  2. store Messages, hidden,
//  3. set the statuses of Executions to Pending, one after the other,
//  4. make Messages visible.
//
// A provider that deletes the timers of an execution when it ends restores those
// that the changed history waits for: replay does not create them again.
type RewindPlan struct {
	// Executions are the executions to change, children before their parents. The last
	// one is that of the instance to rewind.
	Executions []RewoundExecution
	// Messages wake the executions.
	Messages []TaskMessage
}

// RewoundExecution is the change of one execution.
type RewoundExecution struct {
	Instance history.OrchestrationInstance
	// TakeOut are the indexes in the history, ascending, of the events to replace by a
	// *history.GenericEvent with the same header.
	TakeOut []int
	// Mark are the indexes of *history.SubOrchestrationInstanceCreated events whose
	// child is run again or goes on.
	Mark []int
}

// Apply returns a copy of the execution's history with the change.
func (x RewoundExecution) Apply(events []history.Event) []history.Event {
	rewound := append([]history.Event(nil), events...)
	for _, at := range x.TakeOut {
		rewound[at] = &history.GenericEvent{Header: *events[at].Head()}
	}
	return rewound
}

// PlanRewind plans the rewind of an instance. load returns the history of an
// instance's current execution, which is empty if there is none. at is the time of
// the messages. If the instance has no history, the error is [ErrInstanceNotFound].
//
// As in DurableTask, the plan replaces the failed end, the failures of activities and
// of children, and the scheduling of the activities, so that replay schedules them
// again; failed children are rewound in turn, and their ends are sent again
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// RewindHistoryAsync). It differs where DurableTask leaves the instance in a state
// from which it cannot go on:
//
//  1. A failure that the orchestrator has handled by other decisions, such as a
//     retry, stays, since those decisions stay. Of a retry, the last attempt is
//     replaced.
//  2. The messages of what ended after the instance are lost: pending activities are
//     scheduled again, timers that are overdue are created again, and a child's
//     result is sent again.
//  3. A child that was terminated goes on. A child that was purged, or whose ID
//     belongs to another instance, is started again.
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
		// An earlier rewind was cut off when the history was changed already.
		p.plan.Executions = append(p.plan.Executions, RewoundExecution{Instance: x.start.Instance})
		p.wake(x)
	}
	if err := p.rewind(ctx, x); err != nil {
		return nil, err
	}
	return &p.plan, nil
}

// rewindPlanner makes a plan for an instance and its descendants.
type rewindPlanner struct {
	load   func(ctx context.Context, id string) ([]history.Event, error)
	reason string
	at     time.Time
	seen   map[string]bool // instances whose turn has come
	plan   RewindPlan
}

// rewind adds the children of x that are to be done again, and then x, if it
// has ended.
func (p *rewindPlanner) rewind(ctx context.Context, x *recordedExecution) error {
	changes := rewindChanges{}
	if x.end != nil {
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
				changes.mark(c.at)
				waits = true
			}
		case childGone:
			if c.failed && x.end != nil {
				changes.takeOut(c.at)
				changes.again = true
			}
		}
	}
	if x.end == nil {
		return nil
	}
	p.plan.Executions = append(p.plan.Executions, RewoundExecution{
		Instance: x.start.Instance, TakeOut: changes.taken(len(x.events)), Mark: changes.marked(len(x.events)),
	})
	if changes.again || !waits {
		p.wake(x)
	}
	return nil
}

// wake lets the orchestrator of x look for something to do.
func (p *rewindPlanner) wake(x *recordedExecution) {
	p.plan.Messages = append(p.plan.Messages, TaskMessage{
		Event:  &history.GenericEvent{Header: history.NewHeader(p.at), Data: &p.reason},
		Target: history.OrchestrationInstance{InstanceID: x.start.Instance.InstanceID},
	})
}

// childFate is what becomes of a child that the parent has no result of.
type childFate int

const (
	childAwaited childFate = iota // its result arrives
	childGone                     // there is no such child
)

// rewindChild sees to it that the result of a child arrives.
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
		p.wake(x) // in case an earlier rewind was cut off before it did
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
	return childAwaited, p.rewind(ctx, x)
}

// rewindChanges are what to change in one history, by place.
type rewindChanges struct {
	out, marks map[int]bool
	again      bool // the orchestrator has something to decide again
}

func (c *rewindChanges) takeOut(at int) {
	if c.out == nil {
		c.out = make(map[int]bool)
	}
	c.out[at] = true
}

func (c *rewindChanges) mark(at int) {
	if c.marks == nil {
		c.marks = make(map[int]bool)
	}
	c.marks[at] = true
}

func (c *rewindChanges) taken(n int) []int  { return places(c.out, n) }
func (c *rewindChanges) marked(n int) []int { return places(c.marks, n) }

// places returns what is in set, ascending; all of it is below n.
func places(set map[int]bool, n int) []int {
	var list []int
	for at := range n {
		if set[at] {
			list = append(list, at)
		}
	}
	return list
}
