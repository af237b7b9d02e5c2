package dispatch

import (
	"maps"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxGenerations is the maximum number of executions that one work item runs if an orchestrator
// continues as new repeatedly. The next generation is then committed before it runs, and a
// message wakes it. DurableTask has no limit: clients cannot see or terminate an orchestrator
// that never waits, and its worker cannot stop.
const maxGenerations = 100

// maxGenerationMessages is the number of messages after which a work item runs no further
// generation. All messages are held in memory until the commit.
const maxGenerationMessages = 1000

// wakeData is the data of the GenericEvent that wakes a generation that was committed before it
// ran.
const wakeData = "continue-as-new"

// nextStart returns the ExecutionStarted of the next generation after start and end
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, ProcessWorkflowCompletedTaskDecision). It
// copies name, tags, parent, trace and, unless end has a new one, the version. It does not copy
// the generation counter, which counts the starts by clients.
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

// nextEvents returns the first events of the generation with the given start, which follows a generation with
// the given end. They form an episode that received the start and the events that the previous generation did
// not read. They include an OrchestratorCompleted. If the generation makes decisions, the history contains a
// second one (DurableTask.Core/TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync).
//
// The events of the previous generation are copied, because a history may contain them already.
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

// wake returns the message that wakes a generation that was committed before it ran.
func wake(start *history.ExecutionStarted, now time.Time) provider.TaskMessage {
	e := &history.GenericEvent{Header: history.NewHeader(now), Data: new(wakeData)}
	return provider.TaskMessage{Event: e, Target: start.Instance}
}

// hasNotRun reports whether past is a generation that was committed before it ran, and fresh
// contains the message that wakes it. The orchestrator then sees past for the first time, which
// is not a replay.
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

// markPlayed sets IsPlayed on the events that an orchestrator processes: all except
// OrchestratorStarted (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvents), and
// TaskScheduled of a step, which records a decision.
func markPlayed(events []history.Event) {
	for _, e := range events {
		if t := e.Type(); t != history.TypeOrchestratorStarted && t != history.TypeTaskScheduled {
			e.Head().IsPlayed = true
		}
	}
}
