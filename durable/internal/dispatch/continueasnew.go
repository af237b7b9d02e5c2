package dispatch

import (
	"maps"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxGenerations is how many executions one work item runs when an orchestrator
// continues as new again and again. DurableTask runs any number; then an
// orchestrator that never waits is never seen by clients, cannot be terminated
// and keeps its worker from stopping. After this many, the next generation is
// committed without being run and wakes itself by a message.
const maxGenerations = 100

// maxGenerationMessages ends a work item's generations early when they have
// decided this much: it is all kept in memory until the commit.
const maxGenerationMessages = 1000

// wakeData marks the GenericEvent that wakes a generation that was committed
// before it ran.
const wakeData = "continue-as-new"

// nextStart returns the ExecutionStarted of the generation that follows the one
// begun by start (DurableTask.Core/TaskOrchestrationDispatcher.cs,
// ProcessWorkflowCompletedTaskDecision). It keeps name, tags, parent and trace, and
// the version unless end has a new one. It does not keep the generation counter,
// which counts creations by clients.
func nextStart(start *history.ExecutionStarted, end *replay.Complete, executionID string, now time.Time) *history.ExecutionStarted {
	version := start.Version
	if end.NewVersion != nil {
		version = *end.NewVersion
	}
	return &history.ExecutionStarted{
		Header:             history.NewHeader(now),
		Instance:           history.OrchestrationInstance{InstanceID: start.Instance.InstanceID, ExecutionID: executionID},
		Parent:             start.Parent,
		Name:               start.Name,
		Version:            version,
		Input:              end.Result,
		Tags:               maps.Clone(start.Tags),
		ParentTraceContext: start.ParentTraceContext,
	}
}

// nextEvents returns the first events of the generation begun by start: those of an
// episode that only took its start and the events that the generation before left
// unread, which ended with end. They include OrchestratorCompleted, which the history
// has a second time once the generation has decided something
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync).
//
// Events that came before are copied: they may stand in a history already.
func nextEvents(start *history.ExecutionStarted, end *replay.Complete, now time.Time) []history.Event {
	events := make([]history.Event, 0, len(end.CarryOver)+4)
	events = append(events, &history.OrchestratorStarted{Header: history.NewHeader(now)}, start)
	for _, e := range end.CarryOver {
		events = append(events, new(*e))
	}
	if end.Suspended != nil {
		events = append(events, new(*end.Suspended))
	}
	events = append(events, &history.OrchestratorCompleted{Header: history.NewHeader(now)})
	markPlayed(events)
	return events
}

// wake returns the message that wakes a generation that was committed before it
// ran.
func wake(start *history.ExecutionStarted, now time.Time) provider.TaskMessage {
	e := &history.GenericEvent{Header: history.NewHeader(now), Data: new(wakeData)}
	return provider.TaskMessage{Event: e, Target: start.Instance}
}

// hasNotRun reports whether past is a generation that was committed before it
// ran, and fresh has the message that wakes it. Then past is not a replay: the
// orchestrator sees it for the first time.
func hasNotRun(past, fresh []history.Event) bool {
	for i, e := range past {
		switch e.(type) {
		case *history.OrchestratorStarted:
			if i != 0 {
				return false
			}
		case *history.ExecutionStarted, *history.EventRaised, *history.ExecutionSuspended:
		case *history.OrchestratorCompleted:
			if i != len(past)-1 {
				return false
			}
		default:
			return false
		}
	}
	for _, e := range fresh {
		if g, ok := e.(*history.GenericEvent); ok && g.Data != nil && *g.Data == wakeData {
			return len(past) > 0
		}
	}
	return false
}

// markPlayed sets IsPlayed on the events that an orchestrator is shown, which
// are all but OrchestratorStarted (DurableTask.Core/TaskOrchestrationExecutor.cs,
// ProcessEvents).
func markPlayed(events []history.Event) {
	for _, e := range events {
		if e.Type() != history.TypeOrchestratorStarted {
			e.Head().IsPlayed = true
		}
	}
}
