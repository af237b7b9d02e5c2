package replay

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// see takes one event of the history or of the new episode.
func (x *Execution) see(e history.Event) {
	x.extent.add(e)
	closes := false
	switch e := e.(type) {
	case *history.OrchestratorStarted:
		x.endOfEpisode()
		x.now = history.Ticks(e.Timestamp) // as it will be read from the history
	case *history.OrchestratorCompleted:
		closes = !e.IsPlayed
	case *history.TaskScheduled, *history.TimerCreated,
		*history.SubOrchestrationInstanceCreated, *history.EventSent:
		x.match(e)
	case *history.ExecutionCompleted, *history.ContinueAsNew:
		x.ended()
	case *history.GenericEvent:
		x.recorded.hole(e.EventID)
	case *history.ExecutionTerminated:
		x.terminate(e)
	case *history.ExecutionSuspended:
		x.suspend(e)
	case *history.ExecutionResumed:
		x.resume()
	default:
		if x.suspended {
			x.held = append(x.held, e)
		} else {
			x.deliver(e)
		}
	}
	x.recorded.closed = closes
}

// deliver shows an event to the orchestrator and lets it run.
func (x *Execution) deliver(e history.Event) {
	if x.complete != nil {
		// Only a next generation could still want it.
		if e, ok := e.(*history.EventRaised); ok && !x.isAnswer(e) {
			x.late = append(x.late, e)
		}
		return
	}
	switch e := e.(type) {
	case *history.ExecutionStarted:
		x.begin(e)
	case *history.TaskCompleted:
		x.settle(e.TaskScheduledID, taskKind, e)
	case *history.TaskFailed:
		x.settle(e.TaskScheduledID, taskKind, e)
	case *history.SubOrchestrationInstanceCompleted:
		x.settle(e.TaskScheduledID, childKind, e)
	case *history.SubOrchestrationInstanceFailed:
		x.settle(e.TaskScheduledID, childKind, e)
	case *history.TimerFired:
		x.fire(e)
	case *history.EventRaised:
		if !x.answer(e) {
			x.raise(e)
		}
	default:
		return // HistoryState, ExecutionRewound: nothing to the orchestrator
	}
	x.run()
}

// settle completes what the action with the given ID began. A completion of
// something that is not open is a duplicate, and is ignored
// (DurableTask.Core/TaskOrchestrationContext.cs, HandleTaskCompletedEvent).
func (x *Execution) settle(id int, k kind, e history.Event) {
	f := x.open.remove(id, k)
	if f == nil || len(x.retries) > 0 && x.retry(f, e) {
		return
	}
	f.complete(e)
}

// suspend stops the delivery of events, until the instance is resumed
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
func (x *Execution) suspend(e *history.ExecutionSuspended) {
	if x.complete != nil {
		x.lateHold, x.withheld = e, x.withheld || x.replaying
		return
	}
	x.suspended = true
}

// resume delivers what came in the meantime, in order.
func (x *Execution) resume() {
	x.lateHold, x.withheld = nil, false
	if !x.suspended {
		return
	}
	x.suspended = false
	held := x.held
	x.held = nil
	for _, e := range held {
		x.deliver(e)
	}
}
