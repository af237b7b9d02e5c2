package memhub

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// instance is the state, the history and the queue of an instance ID.
type instance struct {
	state      *provider.InstanceState // nil if the instance has only messages
	history    []history.Event
	mail       []*message
	inWithMail bool     // is in Hub.withMail
	session    *session // the session that holds the lock, or nil
}

// message is a task message in a queue.
type message struct {
	provider.TaskMessage
	sequence int
	visible  time.Time
	attempts int
	inFlight bool
}

// sortedMail holds an instance's visible messages by their dispositions. Messages in neither
// list stay in the queue.
type sortedMail struct {
	execution history.OrchestrationInstance // the execution that receives take
	isNew     bool                          // the execution has no history yet
	take      []*message                    // to deliver, in order
	drop      map[*message]bool             // to delete
}

// sort sorts visible messages by their dispositions. A message for another execution is
// delivered, too: the engine discards it or passes it to a later execution.
func (i *instance) sort(visible []*message) sortedMail {
	starting := func(e history.OrchestrationInstance) provider.Progress {
		return provider.Progress{Known: true, Execution: e.ExecutionID, Status: history.Pending, Starting: true}
	}
	p, sorted := i.progress(), sortedMail{drop: make(map[*message]bool)}
	sorted.execution.InstanceID = visible[0].Target.InstanceID
	if i.state != nil {
		sorted.execution = i.state.Instance
	}
	begins := func(m *message) bool { return i.disposition(&p, m) == provider.StartExecution }
	if at := slices.IndexFunc(visible, begins); i.session != nil && i.session.isNew {
		p = starting(i.session.execution)
	} else if sorted.isNew = !p.HasHistory; at >= 0 {
		sorted.execution, sorted.isNew = visible[at].Event.(*history.ExecutionStarted).Instance, true
		sorted.take = append(sorted.take, visible[at])
		visible = slices.Delete(visible, at, at+1)
		p = starting(sorted.execution)
	}
	for _, m := range visible {
		switch i.disposition(&p, m) {
		case provider.Deliver:
			sorted.take = append(sorted.take, m)
		case provider.OtherExecution:
			if p.HasHistory || p.Starting {
				sorted.take = append(sorted.take, m)
			}
		case provider.Discard:
			sorted.drop[m] = true
		case provider.StartExecution, provider.HoldBack:
		}
	}
	return sorted
}

func (i *instance) disposition(p *provider.Progress, m *message) provider.Disposition {
	d, _ := p.Disposition(m.TaskMessage, false) // reading a history in memory cannot fail
	return d
}

// progress returns the instance's state for dispositions. An instance is known as soon as its
// start is in the queue.
func (i *instance) progress() provider.Progress {
	p := provider.Progress{History: func() ([]history.Event, error) { return i.history, nil }}
	if i.state != nil {
		p.Known, p.Execution, p.Status, p.HasHistory = true, i.state.Instance.ExecutionID, i.state.Status, len(i.history) > 0
		return p
	}
	for _, m := range i.mail {
		if start, ok := m.Event.(*history.ExecutionStarted); ok {
			p.Known, p.Execution, p.Status = true, start.Instance.ExecutionID, history.Pending
			break
		}
	}
	return p
}

// terminateUnstarted terminates an instance that is scheduled to start later. It returns false if the
// instance is not one, or if e is not a termination.
func (i *instance) terminateUnstarted(e history.Event, now time.Time) bool {
	t, ok := e.(*history.ExecutionTerminated)
	if !ok || i.state == nil || i.state.Status != history.Pending || !i.state.ScheduledAt.After(now) {
		return false
	}
	i.state = new(*i.state)
	i.state.Apply(t)
	i.mail = nil
	return true
}

// due returns the messages that are visible and not in flight. next is the time at which the
// next message becomes visible, or zero.
func due(queue []*message, now time.Time) (visible []*message, next time.Time) {
	for _, m := range queue {
		switch {
		case m.inFlight:
		case !m.visible.After(now):
			visible = append(visible, m)
		default:
			next = earlier(next, m.visible)
		}
	}
	return visible, next
}

// earlier returns the earlier of two times. A zero time is later than any other.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// backOff abandons m: m becomes visible after a delay that doubles with each attempt
// (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync).
func (m *message) backOff(now time.Time, cause error) {
	m.inFlight = false
	m.visible = now.Add(provider.AbandonDelay(cause, now, min(time.Second<<min(m.attempts, 10), 600*time.Second)))
}

// endsPause reports whether m ends the delay of abandoned messages of its instance. Such a message takes
// effect even if the worker lacks the instance's code.
func (m *message) endsPause() bool {
	switch m.Event.(type) {
	case *history.ExecutionTerminated, *history.ExecutionSuspended, *history.ExecutionResumed:
		return true
	}
	return false
}

// endPause makes abandoned messages visible.
func (i *instance) endPause(now time.Time) {
	for _, m := range i.mail {
		if !m.inFlight && m.attempts > 0 && m.visible.After(now) {
			m.visible = now
		}
	}
}

// remove returns queue without the messages for which drop returns true.
func remove(queue []*message, drop func(*message) bool) []*message {
	return slices.DeleteFunc(queue, drop)
}
