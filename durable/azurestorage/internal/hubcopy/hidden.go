package hubcopy

import (
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Hidden messages
//
// An export cannot read a hidden message. It reconstructs some hidden messages from histories and rows.
// For all others it waits until they are visible. The service reports only the number of messages in a
// queue, so the export subtracts the received messages and the explained ones.
//
// A message is explained only if it is certainly in its queue. Otherwise it could stand for another
// hidden message, and the copy would lose that message. The export receives an uncertain message when it
// becomes visible, or reconstructs it.

// clockSkew is the maximum difference between the clocks of a worker and of the export. A worker may
// have consumed a message that is due within this time after the start of the export. No worker runs
// during the export.
const clockSkew = time.Minute

// certainAfter returns the due time after which an unreceived message is certainly in its queue.
func (x *export) certainAfter() time.Time {
	if t := x.startedAt.Add(clockSkew); t.After(x.receivedAt) {
		return t
	}
	return x.receivedAt
}

// An action identifies an activity, a child or a timer of an execution.
type action struct {
	instance, execution string
	id                  int
}

// pending is the work in flight according to the received messages.
type pending struct {
	runs      map[action]bool // activities whose work item was received
	completed map[action]bool // activities and children whose completion message was received
	fired     map[action]bool // timers whose message was received
	starts    map[history.OrchestrationInstance]bool
	started   map[string]bool // instances with a received start message of any execution
	wakes     map[string]bool // instances that a received message wakes because of their steps or polls
	signals   map[signal]bool
}

// hasStart reports whether the start message of an awaited execution was received.
func (p pending) hasStart(x *exported) bool {
	awaited := x.state.Instance
	return p.starts[awaited] || awaited.ExecutionID == "" && p.started[awaited.InstanceID]
}

// A signal identifies an event for an entity. Its input contains a unique ID.
type signal struct{ to, name, input string }

func signalOf(m provider.TaskMessage) signal {
	ev := m.Event.(*history.EventRaised)
	return signal{m.Target.InstanceID, ev.Name, store.Value(ev.Input)}
}

// hiddenSignals returns the delayed signals of an instance that were not received.
func (p pending) hiddenSignals(x *exported, now time.Time) (hidden []provider.TaskMessage) {
	for _, m := range x.signals {
		if provider.DueTime(m).After(now) && !p.signals[signalOf(m)] {
			hidden = append(hidden, m)
		}
	}
	return hidden
}

// missing counts the work in flight according to the histories that has no message.
func (p pending) missing(instances map[string]*exported) int {
	missing := 0
	for _, x := range instances {
		if !x.isRunning() {
			continue
		}
		for n := range x.tasks {
			if key := x.action(n); !p.runs[key] && !p.completed[key] {
				missing++
			}
		}
		for n, child := range x.children {
			c := instances[child]
			if isRunning := c != nil && c.isRunning(); !p.completed[x.action(n)] && !isRunning && !p.started[child] {
				missing++
			}
		}
	}
	return missing
}

// explained counts, by queue name, the hidden messages that are certainly in their queue. The export
// reconstructs them, or no instance waits for them.
func (x *export) explained(p pending) map[string]int {
	explained := map[string]int{}
	for id, inst := range x.instances {
		explained[x.hub.QueueOf(id).Name] += p.ownExplained(inst, x.receivedAt, x.certainAfter())
		for _, m := range p.hiddenSignals(inst, x.certainAfter()) {
			explained[x.hub.QueueOf(m.Target.InstanceID).Name]++
		}
	}
	return explained
}

// ownExplained counts the explained messages to an instance, without signals. certain is the result of
// certainAfter.
func (p pending) ownExplained(x *exported, now, certain time.Time) int {
	explained := 0
	for n, timer := range x.timers {
		if !p.fired[x.action(n)] && x.isHidden(timer, now, certain) {
			explained++
		}
	}
	if x.isAwaited() && !p.hasStart(x) && x.state.ScheduledAt.After(now) {
		explained++
	}
	if x.isWoken && !p.wakes[x.state.Instance.InstanceID] {
		explained++
	}
	return explained
}

// isHidden reports whether the message of a timer is certainly hidden. A worker hides the message of a
// running execution again until the timer is due. A worker discards the message of an ended execution when
// the timer is due by its clock, or after a week.
func (x *exported) isHidden(t *history.TimerCreated, now, certain time.Time) bool {
	if x.isRunning() {
		return t.FireAt.After(now)
	}
	return t.FireAt.After(certain) && t.Timestamp.Add(store.MaxVisibilityTimeout).After(certain)
}

// hasWakeUp reports whether a message certainly wakes an execution because of its steps or polls. A
// worker enqueues such a message before it writes the row. A suspended instance may have none, because
// its resumption runs the steps.
func hasWakeUp(row *wire.InstanceRow, stored instances.History) bool {
	if row == nil || row.State.Instance.ExecutionID != stored.ExecutionID || history.IsEntity(row.State.Instance.InstanceID) ||
		row.State.Status != history.Running || stored.Known.Status != history.Running {
		return false
	}
	isFirst := stored.First() == "" && row.State.CreatedAt.Equal(row.State.FirstCreatedAt)
	return stored.Known.CertainlyHasOpenSteps(isFirst)
}

// timersAfterEnd returns the messages of timers that are hidden in the queue of a hub whose execution has
// ended there. A rewound execution waits for them, and the next export counts them.
func timersAfterEnd(state *provider.InstanceState, past []history.Event, now time.Time) (hidden []provider.TaskMessage) {
	stored := instances.History{ExecutionID: state.Instance.ExecutionID, Known: instances.NewKnownEvents()}
	for _, ev := range past {
		stored.Known.Add(ev)
	}
	x := newExported(nil, stored, state, past)
	if x.isRunning() {
		return nil
	}
	for _, n := range slices.Sorted(maps.Keys(x.timers)) {
		if x.isHidden(x.timers[n], now, now.Add(clockSkew)) {
			hidden = append(hidden, *x.fired(x.timers[n], now))
		}
	}
	return hidden
}
