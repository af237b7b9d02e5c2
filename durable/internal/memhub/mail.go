package memhub

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// sortedMail is what an instance's visible messages are good for.
type sortedMail struct {
	execution history.OrchestrationInstance // that take is for
	isNew     bool                          // it has not begun
	take      []*message                    // to be handed out, in order
	early     []*message                    // to be held back: what they answer is not known yet
	drop      map[*message]bool             // nobody wants them
}

// sortMail decides about the visible messages of i. What is in none of the
// lists waits.
//
// Messages for executions that are gone are handed out with the others: it is
// the engine that drops them.
func sortMail(i *instance, visible []*message) sortedMail {
	sorted := sortedMail{drop: make(map[*message]bool)}
	current, ended := currentExecution(i.history)
	if id := visible[0].Target.InstanceID; provider.IsEntity(id) {
		// It begins to be with whatever comes first, and never ends.
		sorted.execution, sorted.isNew, sorted.take = current, len(i.history) == 0, visible
		if sorted.isNew {
			sorted.execution = history.OrchestrationInstance{InstanceID: id}
			if start, ok := visible[0].Event.(*history.ExecutionStarted); ok {
				sorted.execution = start.Instance
			}
		}
		return sorted
	}
	if start := sorted.newStart(i, visible, current, ended); start != nil {
		sorted.execution = start.Event.(*history.ExecutionStarted).Instance
		sorted.isNew = true
		sorted.take = append(sorted.take, start)
		for _, m := range visible {
			_, answers := history.Completes(m.Event)
			switch {
			case m.Event.Type() == history.TypeExecutionStarted,
				m.Target.ExecutionID != "" && m.Target.ExecutionID != sorted.execution.ExecutionID:
			case answers:
				sorted.early = append(sorted.early, m)
			default:
				sorted.take = append(sorted.take, m)
			}
		}
		return sorted
	}
	if current == (history.OrchestrationInstance{}) {
		sorted.dropStrays(i, visible)
		return sorted
	}
	sorted.execution = current
	scheduled := scheduledIDs(i.history)
	for _, m := range visible {
		mine := m.Target.ExecutionID == "" || m.Target.ExecutionID == current.ExecutionID
		id, answers := history.Completes(m.Event)
		switch {
		case sorted.drop[m]:
		case ended && i.holdsBack(m):
		case ended:
			sorted.drop[m] = true
		case mine && answers && !scheduled[id]:
			sorted.early = append(sorted.early, m)
		default:
			sorted.take = append(sorted.take, m)
		}
	}
	return sorted
}

// newStart returns the first message that begins an execution, and drops starts
// that lost against another with the same ID. That of a child waits while
// another instance with the ID is about to start, and is handed to one that goes
// on: the engine refuses it.
func (sorted *sortedMail) newStart(i *instance, visible []*message, current history.OrchestrationInstance, ended bool) *message {
	for _, m := range visible {
		e, ok := m.Event.(*history.ExecutionStarted)
		switch {
		case !ok || e.Instance.ExecutionID == current.ExecutionID:
			continue
		case e.Parent == nil && i.state != nil && i.state.Instance.ExecutionID != e.Instance.ExecutionID:
			sorted.drop[m] = true
		case e.Parent != nil && (current.ExecutionID != "" && !ended || i.isPendingFor(e)):
			continue
		case e.Parent != nil && ended && isSameChild(i.history, e):
			sorted.drop[m] = true
		default:
			return m
		}
	}
	return nil
}

// isPendingFor reports whether another execution than start's is about to start.
func (i *instance) isPendingFor(start *history.ExecutionStarted) bool {
	return i.state != nil && i.state.Status == history.Pending && i.state.Instance.ExecutionID != start.Instance.ExecutionID
}

// holdsBack reports whether m is the start of a child that has to wait until
// another execution has started.
func (i *instance) holdsBack(m *message) bool {
	e, ok := m.Event.(*history.ExecutionStarted)
	return ok && e.Parent != nil && i.isPendingFor(e)
}

// isSameChild reports whether start is that of the child whose history this is,
// sent again: the child may have continued as new since.
func isSameChild(events []history.Event, start *history.ExecutionStarted) bool {
	for _, e := range events {
		if e, ok := e.(*history.ExecutionStarted); ok {
			return e.Parent != nil && *e.Parent == *start.Parent
		}
	}
	return false
}

// dropStrays drops messages for an instance that does not exist, and keeps those
// for one that is yet to begin.
func (sorted *sortedMail) dropStrays(i *instance, visible []*message) {
	for _, m := range i.mail {
		if m.Event.Type() == history.TypeExecutionStarted && !sorted.drop[m] {
			return
		}
	}
	for _, m := range visible {
		sorted.drop[m] = true
	}
}

// currentExecution returns the execution that a history is of.
func currentExecution(events []history.Event) (instance history.OrchestrationInstance, ended bool) {
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			instance = e.Instance
		case *history.ExecutionCompleted:
			ended = true
		}
	}
	return instance, ended
}

// scheduledIDs returns the numbers of the actions in a history.
func scheduledIDs(events []history.Event) map[int]bool {
	ids := make(map[int]bool)
	for _, e := range events {
		if id := e.Head().EventID; id != history.NoEventID {
			ids[id] = true
		}
	}
	return ids
}

// updated returns the state of an instance after cp
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateStateAsync).
func updated(old *provider.InstanceState, cp *provider.Checkpoint, now time.Time) *provider.InstanceState {
	s := new(provider.InstanceState)
	if old != nil {
		*s = *old
	}
	isNew := old == nil || old.Status.IsTerminal() && old.Instance != cp.Instance
	s.Instance, s.CustomStatus = cp.Instance, cp.CustomStatus
	for _, e := range cp.NewEvents {
		s.LastUpdatedAt = e.Head().Timestamp
		switch e := e.(type) {
		case *history.ExecutionStarted:
			s.Name, s.Version, s.Input, s.Tags, s.CreatedAt = e.Name, e.Version, e.Input, e.Tags, e.Timestamp
			s.Status, s.Output, s.CompletedAt = history.Running, nil, time.Time{}
			if isNew {
				s.FirstCreatedAt = e.Timestamp
			}
			if e.Generation != nil {
				s.Generation = *e.Generation
			}
		case *history.ExecutionCompleted:
			s.Status, s.Output, s.CompletedAt = e.Status, e.Result, now
			if e.Failure != nil {
				s.Output = new(e.Failure.String())
			}
		case *history.ExecutionSuspended:
			s.Status, s.Output = history.Suspended, e.Reason
		case *history.ExecutionResumed:
			s.Status, s.Output = history.Running, e.Reason
		}
	}
	if s.Status == history.Pending { // it was rewound
		s.Status = history.Running
	}
	return s
}
