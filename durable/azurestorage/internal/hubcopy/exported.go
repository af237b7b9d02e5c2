package hubcopy

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An exported remembers of an exported instance what decides on its messages.
type exported struct {
	loaded instances.Instance // without the events
	state  *provider.InstanceState

	// What the history says is under way, by action.
	tasks    map[int]bool
	children map[int]string // their instance IDs
	timers   map[int]*history.TimerCreated
	signals  []provider.TaskMessage // for entities, to be delivered later
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
		x.state.Input = state.Input // for the start, if that is to be made anew
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
		if _, later := provider.EntityDue(m); later {
			x.signals = append(x.signals, m)
		}
	default:
		if id, ok := history.Completes(ev); ok {
			delete(x.tasks, id)
			delete(x.timers, id)
			delete(x.children, id)
		}
	}
}

// goesOn reports whether the instance waits for what is under way.
func (x *exported) goesOn() bool { return x.loaded.Known.Started && x.loaded.Known.Ended == nil }

// isAwaited reports whether the start of the instance must be somewhere.
func (x *exported) isAwaited() bool {
	return !x.loaded.Known.Started && x.state.Status == history.Pending
}

// start returns the start message of an instance that is scheduled for later, made from
// its row.
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

// fired returns the message of a timer, made from the history.
func (x *exported) fired(t *history.TimerCreated, now time.Time) *provider.TaskMessage {
	return &provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: x.state.Instance.InstanceID, ExecutionID: x.loaded.ExecutionID},
		Event:  &history.TimerFired{Header: history.NewHeader(now), TimerID: t.EventID, FireAt: t.FireAt},
	}
}

// An action names what an execution decided.
type action struct {
	instance, execution string
	id                  int
}

// pending is the work in flight, by the messages of a hub.
type pending struct {
	runs      map[action]bool // activities that are to be run
	completed map[action]bool // whatever has its completion on the way
	starts    map[string]bool // instances whose start is on the way
	signals   map[signal]bool // events that are on the way
}

// A signal tells an event for an entity apart from others: its input has an ID.
type signal struct{ to, name, input string }

func signalOf(m provider.TaskMessage) signal {
	ev := m.Event.(*history.EventRaised)
	return signal{m.Target.InstanceID, ev.Name, store.Value(ev.Input)}
}

// hiddenSignals returns the delayed signals of an instance that were not received yet.
func (p pending) hiddenSignals(x *exported, now time.Time) (hidden []provider.TaskMessage) {
	for _, m := range x.signals {
		if provider.Due(m).After(now) && !p.signals[signalOf(m)] {
			hidden = append(hidden, m)
		}
	}
	return hidden
}

// missing counts what the histories say must be under way, but is not seen.
func (p pending) missing(instances map[string]*exported) int {
	missing := 0
	for id, x := range instances {
		if x.isAwaited() && !p.starts[id] && x.state.ScheduledAt.IsZero() {
			missing++
		}
		if !x.goesOn() {
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
			lives := c != nil && (c.goesOn() || c.isAwaited())
			if !p.completed[key(n)] && !lives && !p.starts[child] {
				missing++
			}
		}
	}
	return missing
}

// explained counts what may be hidden in the queues and need not be read: it can
// be made from histories and rows, or nothing waits for it.
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
		explained += len(p.hiddenSignals(x, now))
	}
	return explained
}
