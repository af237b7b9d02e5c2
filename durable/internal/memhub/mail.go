package memhub

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// instance is everything with one instance ID.
type instance struct {
	state   *provider.InstanceState // nil if there is only mail for it
	history []history.Event
	mail    []*message
	listed  bool     // in Hub.mailed
	session *session // that holds the lock; nil if none does
}

// message is a task message in a queue.
type message struct {
	provider.TaskMessage
	sequence int
	visible  time.Time
	attempts int
	inFlight bool
}

// sortedMail is an instance's visible messages by their dispositions. A message that
// is in no list waits.
type sortedMail struct {
	execution history.OrchestrationInstance // of the messages in take
	isNew     bool                          // it has not begun
	take      []*message                    // to be delivered, in order
	drop      map[*message]bool             // to be deleted
}

// sort decides what becomes of visible messages. A foreign one is delivered with the
// others: the engine drops it, or passes it on to an execution that is to follow.
func (i *instance) sort(visible []*message) sortedMail {
	p := i.progress()
	sorted := sortedMail{drop: make(map[*message]bool), isNew: !p.Begun}
	sorted.execution.InstanceID = visible[0].Target.InstanceID
	if i.state != nil {
		sorted.execution = i.state.Instance
	}
	begins := func(m *message) bool { return i.disposition(&p, m) == provider.Begin }
	if at := slices.IndexFunc(visible, begins); at >= 0 {
		sorted.execution, sorted.isNew = visible[at].Event.(*history.ExecutionStarted).Instance, true
		sorted.take = append(sorted.take, visible[at])
		visible = slices.Delete(visible, at, at+1)
		p = provider.Progress{Known: true, Execution: sorted.execution.ExecutionID, Status: history.Pending, Starting: true}
	}
	for _, m := range visible {
		switch i.disposition(&p, m) {
		case provider.Deliver:
			sorted.take = append(sorted.take, m)
		case provider.Foreign:
			if p.Begun || p.Starting {
				sorted.take = append(sorted.take, m)
			}
		case provider.Discard:
			sorted.drop[m] = true
		case provider.Begin, provider.Wait:
		}
	}
	return sorted
}

func (i *instance) disposition(p *provider.Progress, m *message) provider.Disposition {
	d, _ := p.Disposition(m.TaskMessage, false) // a history in memory can be read
	return d
}

// progress returns what decides about messages. A child is known from the moment
// that its start is sent.
func (i *instance) progress() provider.Progress {
	p := provider.Progress{History: func() ([]history.Event, error) { return i.history, nil }}
	if i.state != nil {
		p.Known, p.Execution, p.Status, p.Begun = true, i.state.Instance.ExecutionID, i.state.Status, len(i.history) > 0
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

// endUnbegun applies a termination to an instance that is to start later, and
// reports whether it did.
func (i *instance) endUnbegun(e history.Event, now time.Time) bool {
	t, ok := e.(*history.ExecutionTerminated)
	if !ok || i.state == nil || i.state.Status != history.Pending || !i.state.ScheduledAt.After(now) {
		return false
	}
	i.state = new(*i.state)
	i.state.Apply(t)
	i.mail = nil
	return true
}

// due returns the messages that are visible and not in flight, and when the next one
// becomes visible, zero if there is none.
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

// earlier returns the earlier of two times, where zero is later than all.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// backOff abandons m: it becomes visible after a delay that grows with its
// attempts (DurableTask.AzureStorage/Messaging/TaskHubQueue.cs,
// AbandonMessageAsync).
func (m *message) backOff(now time.Time, cause error) {
	m.inFlight = false
	m.visible = now.Add(provider.AbandonDelay(cause, now, min(time.Second<<min(m.attempts, 10), 600*time.Second)))
}

// remove returns queue without those messages that drop selects.
func remove(queue []*message, drop func(*message) bool) []*message {
	return slices.DeleteFunc(queue, drop)
}
