package hubcopy

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// exported contains the data of an exported instance that decides on its messages.
type exported struct {
	loaded instances.Instance // without events
	state  *provider.InstanceState

	// Work in flight according to the history, by EventID.
	tasks    map[int]bool
	children map[int]string // child instance IDs
	timers   map[int]*history.TimerCreated
	signals  []provider.TaskMessage // delayed signals to entities
}

func newExported(row *wire.InstanceRow, stored instances.History, state *provider.InstanceState, past []history.Event) *exported {
	x := &exported{
		loaded: instances.Instance{History: instances.History{ExecutionID: stored.ExecutionID, Known: stored.Known, ETag: stored.ETag, Batches: stored.Batches}},
		state: &provider.InstanceState{
			Instance: state.Instance, Name: state.Name, Version: state.Version, Status: state.Status,
			CreatedAt: state.CreatedAt, ScheduledAt: state.ScheduledAt, Generation: state.Generation, Tags: state.Tags,
		},
		tasks: map[int]bool{}, children: map[int]string{}, timers: map[int]*history.TimerCreated{},
	}
	if state.Status == history.Pending {
		x.state.Input = state.Input // for a reconstructed start message
	}
	if len(past) == 0 {
		x.loaded.ExecutionID, x.loaded.Known = state.Instance.ExecutionID, instances.NewKnownEvents()
	}
	x.loaded.Row = row
	if row != nil {
		kept := &wire.InstanceRow{State: *x.state, Generation: row.Generation}
		x.loaded.Row = kept
	}
	for _, ev := range past {
		x.add(ev)
	}
	return x
}

func (x *exported) add(ev history.Event) {
	switch ev := ev.(type) {
	case *history.TaskScheduled:
		x.tasks[ev.EventID] = true
	case *history.TimerCreated:
		x.timers[ev.EventID] = ev
	case *history.SubOrchestrationInstanceCreated:
		if _, forgotten := ev.Tags[history.FireAndForget]; !forgotten {
			x.children[ev.EventID] = ev.InstanceID
		}
	case *history.EventSent:
		m := provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: ev.InstanceID},
			Event:  &history.EventRaised{Header: history.NewHeader(ev.Timestamp), Name: ev.Name, Input: ev.Input},
		}
		if _, later := provider.EntityDueTime(m); later {
			x.signals = append(x.signals, m)
		}
	default:
		if id, ok := history.StepStartOf(ev); ok {
			delete(x.tasks, id) // a step has no message
		} else if id, ok := history.Completes(ev); ok {
			delete(x.tasks, id)
			delete(x.timers, id)
			delete(x.children, id)
		}
	}
}

// isRunning reports whether the execution is running.
func (x *exported) isRunning() bool { return x.loaded.Known.Started && x.loaded.Known.Ended == nil }

// execution returns the execution whose history was exported.
func (x *exported) execution() history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: x.state.Instance.InstanceID, ExecutionID: x.loaded.ExecutionID}
}

// wakes reports whether m has no effect except that it wakes an instance with running steps or
// waiting polls. The export writes such a message of its own: the instance may have none, or a hidden
// one, and the target discards the start of an execution that has started.
func (x *exported) wakes(m *provider.TaskMessage) bool {
	start, isStart := m.Event.(*history.ExecutionStarted)
	_, polls := m.WokenPolls()
	return m.WakesSteps() || polls != nil || isStart && x.isRunning() && start.Instance.ExecutionID == x.loaded.ExecutionID
}

// isAwaited reports whether a start message of the instance must exist.
func (x *exported) isAwaited() bool {
	return !x.loaded.Known.Started && x.state.Status == history.Pending
}

// start reconstructs the start message of an instance that is scheduled for later from its row.
func (x *exported) start() *provider.TaskMessage {
	s := x.state
	return &provider.TaskMessage{
		Target: s.Instance,
		Event: &history.ExecutionStarted{
			Header: history.NewHeader(s.CreatedAt), Instance: s.Instance, Name: s.Name, Version: s.Version,
			Input: s.Input, Tags: s.Tags, ScheduledStart: s.ScheduledAt, Generation: new(s.Generation),
		},
	}
}

// fired reconstructs the message of a timer from the history.
func (x *exported) fired(t *history.TimerCreated, now time.Time) *provider.TaskMessage {
	return &provider.TaskMessage{
		Target: x.execution(),
		Event:  &history.TimerFired{Header: history.NewHeader(now), TimerID: t.EventID, FireAt: t.FireAt},
	}
}

// An action identifies an activity, a child or a timer of an execution.
type action struct {
	instance, execution string
	id                  int
}

// pending is the work in flight according to the messages of a hub.
type pending struct {
	runs      map[action]bool // activities whose work item exists
	completed map[action]bool // actions whose completion message exists
	starts    map[string]bool // instances whose start message exists
	wakes     map[string]bool // instances that a message wakes because of their steps or polls
	signals   map[signal]bool // events whose message exists
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
	for id, x := range instances {
		if x.isAwaited() && !p.starts[id] && x.state.ScheduledAt.IsZero() {
			missing++
		}
		if !x.isRunning() {
			continue
		}
		key := func(n int) action { return action{id, x.loaded.ExecutionID, n} }
		for n := range x.tasks {
			if !p.runs[key(n)] && !p.completed[key(n)] {
				missing++
			}
		}
		for n, child := range x.children {
			c := instances[child]
			lives := c != nil && (c.isRunning() || c.isAwaited())
			if !p.completed[key(n)] && !lives && !p.starts[child] {
				missing++
			}
		}
	}
	return missing
}

// explained counts the messages that may be hidden in the queues and need not be received: they can be
// reconstructed from histories and rows, or no instance waits for them.
func (p pending) explained(instances map[string]*exported, now time.Time) int {
	explained := 0
	for id, x := range instances {
		for n, timer := range x.timers {
			if timer.FireAt.After(now) && !p.completed[action{id, x.loaded.ExecutionID, n}] {
				explained++
			}
		}
		if x.isAwaited() && !p.starts[id] && !x.state.ScheduledAt.IsZero() {
			explained++
		}
		if x.isRunning() && x.loaded.Known.HasOpenSteps() && !p.wakes[id] {
			explained++
		}
		explained += len(p.hiddenSignals(x, now))
	}
	return explained
}
