package hubcopy

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/disposition"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// exported contains the data of an exported instance that decides on its messages.
type exported struct {
	loaded instances.Instance // without events
	state  *provider.InstanceState
	openWork

	isWoken bool // see hasWakeUp
}

// openWork is the work in flight according to a history, by EventID.
type openWork struct {
	tasks    map[int]bool
	children map[int]string // child instance IDs
	timers   map[int]*history.TimerCreated
	signals  []provider.TaskMessage // delayed signals to entities
}

func newOpenWork(past []history.Event) openWork {
	w := openWork{tasks: map[int]bool{}, children: map[int]string{}, timers: map[int]*history.TimerCreated{}}
	for _, ev := range past {
		w.add(ev)
	}
	return w
}

func newExported(row *wire.InstanceRow, stored instances.History, state *provider.InstanceState, past []history.Event) *exported {
	x := &exported{
		loaded: instances.Instance{History: instances.History{ExecutionID: stored.ExecutionID, Known: stored.Known, ETag: stored.ETag, Batches: stored.Batches}},
		state: &provider.InstanceState{
			Instance: state.Instance, Name: state.Name, Version: state.Version, Status: state.Status,
			CreatedAt: state.CreatedAt, ScheduledAt: state.ScheduledAt, Generation: state.Generation, Tags: state.Tags,
		},
		openWork: newOpenWork(past),
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
	return x
}

func (w *openWork) add(ev history.Event) {
	switch ev := ev.(type) {
	case *history.TaskScheduled:
		w.tasks[ev.EventID] = true
	case *history.TimerCreated:
		w.timers[ev.EventID] = ev
	case *history.SubOrchestrationInstanceCreated:
		if _, forgotten := ev.Tags[history.FireAndForget]; !forgotten {
			w.children[ev.EventID] = ev.InstanceID
		}
	case *history.EventSent:
		m := provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: ev.InstanceID},
			Event:  &history.EventRaised{Header: history.NewHeader(ev.Timestamp), Name: ev.Name, Input: ev.Input},
		}
		if _, later := provider.EntityDueTime(m); later {
			w.signals = append(w.signals, m)
		}
	default:
		if id, ok := history.StepStartOf(ev); ok {
			delete(w.tasks, id) // a step has no message
		} else if id, ok := history.Completes(ev); ok {
			delete(w.tasks, id)
			delete(w.timers, id)
			delete(w.children, id)
		}
	}
}

// isRunning reports whether the execution is running.
func (x *exported) isRunning() bool { return x.loaded.Known.Started && x.loaded.Known.Ended == nil }

// execution returns the execution whose history was exported.
func (x *exported) execution() history.OrchestrationInstance {
	return history.OrchestrationInstance{InstanceID: x.state.Instance.InstanceID, ExecutionID: x.loaded.ExecutionID}
}

// action identifies an action of the execution.
func (x *exported) action(n int) action {
	return action{x.state.Instance.InstanceID, x.loaded.ExecutionID, n}
}

// wakes reports whether m has no effect except that it wakes an instance with running steps or
// waiting polls. The export writes such a message of its own: the instance may have none, or a hidden
// one, and the target discards the start of an execution that has started.
func (x *exported) wakes(m *provider.TaskMessage) bool {
	start, isStart := m.Event.(*history.ExecutionStarted)
	_, polls := m.WokenPolls()
	return m.WakesSteps() || polls != nil || isStart && x.isRunning() && start.Instance.ExecutionID == x.loaded.ExecutionID
}

// isAwaited reports whether the instance waits for a start message.
func (x *exported) isAwaited() bool {
	return !x.loaded.Known.Started && x.state.Status == history.Pending
}

// start reconstructs the start message of the instance from its row.
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

// accepts reports whether a worker would deliver a message now or later. It is false for a client's start
// of an execution without a row: the client has got no response.
func (x *exported) accepts(r *receivedMessage) bool {
	m := r.env.Message
	fate := disposition.Decide(m.Target.InstanceID, &x.loaded, []disposition.Message{{
		Event: m.Event, ExecutionID: m.Target.ExecutionID, DequeueCount: r.msg.DequeueCount, ReceivedAt: time.Now(),
	}})[0].Action
	start, isStart := m.Event.(*history.ExecutionStarted)
	return fate == disposition.Deliver || fate == disposition.Terminate || fate == disposition.HoldBack && !(isStart && start.Parent == nil)
}
