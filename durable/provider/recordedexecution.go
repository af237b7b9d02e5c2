package provider

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// recordedExecution is the history of one execution, indexed for a rewind. All positions are
// indexes into events.
type recordedExecution struct {
	events []history.Event
	start  *history.ExecutionStarted   // nil if the history has no start
	end    *history.ExecutionCompleted // nil while the execution runs
	endAt  int

	decided map[int]int       // positions of scheduled activities, timers and children, by event ID
	results map[int]int       // positions of their completions and failures, by event ID
	steps   map[time.Time]int // numbers of recorded steps, by the time of the episode that decided them
}

// recordedChild is a child that an execution started.
type recordedChild struct {
	at     int // position of event
	event  *history.SubOrchestrationInstanceCreated
	failed bool // its failure is removed; otherwise the history has no result of the child
}

func read(events []history.Event) *recordedExecution {
	x := &recordedExecution{events: events, decided: make(map[int]int), results: make(map[int]int), steps: make(map[time.Time]int)}
	for at, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			x.start = e
		case *history.ExecutionCompleted:
			x.end, x.endAt = e, at
		case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated:
			x.decided[e.Head().EventID] = at
			if x.isStep(at) {
				x.steps[e.Head().Timestamp.UTC()]++
			}
		default:
			if id, ok := history.Completes(e); ok {
				x.results[id] = at
			}
		}
	}
	return x
}

// isStep reports whether the event at a position is the first half of the record of a step: its
// completion or the mark of its start follows directly. The event has the time of the episode that
// decided the step.
func (x *recordedExecution) isStep(at int) bool {
	scheduled, ok := x.events[at].(*history.TaskScheduled)
	if !ok || at+1 == len(x.events) {
		return false
	}
	id, ok := history.Completes(x.events[at+1])
	if !ok {
		id, ok = history.StepStartOf(x.events[at+1])
	}
	return ok && id == scheduled.EventID
}

// heldLocks reports whether the execution held locks until its end, which releases them
// (DurableTask.Core/Entities/EventFormat/EntityMessageEventNames.cs, ReleaseMessageEventName).
func (x *recordedExecution) heldLocks() bool {
	for at := x.endAt; at > 0 && x.events[at].Type() != history.TypeOrchestratorStarted; at-- {
		if e, ok := x.events[at].(*history.EventSent); ok && e.Name == "release" && history.IsEntity(e.InstanceID) {
			return true
		}
	}
	return false
}

func isFailure(e history.Event) bool {
	switch e.(type) {
	case *history.TaskFailed, *history.SubOrchestrationInstanceFailed:
		return true
	}
	return false
}

// rewound returns the events to remove from the history of an execution that has ended. It does
// not handle the creation of children.
func (x *recordedExecution) rewound(now time.Time) rewindChanges {
	c := rewindChanges{}
	c.replace(x.endAt)
	handled, idle := x.handledFailures()
	for at, e := range x.events {
		id := e.Head().EventID
		_, hasResult := x.results[id]
		switch e := e.(type) {
		case *history.ExecutionTerminated:
			c.replace(at)
		case *history.TaskFailed:
			if handled[at] {
				continue
			}
			c.replace(append(idle[at], at)...)
			// The scheduling event is missing if an earlier rewind was interrupted.
			if scheduled, ok := x.decided[e.TaskScheduledID]; ok {
				c.replace(scheduled)
			}
			c.again = true
		case *history.SubOrchestrationInstanceFailed:
			if !handled[at] {
				c.replace(append(idle[at], at)...)
			}
		case *history.TaskScheduled:
			if !hasResult {
				c.replace(at)
				c.again = true
			}
		case *history.TimerCreated:
			if !hasResult && !e.FireAt.After(now) {
				c.replace(at)
				c.again = true
			}
		}
	}
	return c
}

// children returns the children whose failure c removes and the children without a result.
func (x *recordedExecution) children(c rewindChanges) []recordedChild {
	var children []recordedChild
	for at, e := range x.events {
		created, ok := e.(*history.SubOrchestrationInstanceCreated)
		if !ok {
			continue
		}
		if _, forgotten := created.Tags[history.FireAndForget]; forgotten {
			continue
		}
		answer, hasResult := x.results[created.EventID]
		if !hasResult || c.replaced[answer] {
			children = append(children, recordedChild{at: at, event: created, failed: hasResult})
		}
	}
	return children
}

// handledFailures finds the failures that the orchestrator has handled by making other
// decisions. These failures stay in the history. The search is a heuristic. A history shows
// which events arrived together and what the orchestrator decided then. It does not show which
// event caused which decision.
//
// idle holds, by the position of a failure, the positions of its timer with zero delay and of the
// firing. DurableTask creates such a timer after the last attempt of a retry
// (DurableTask.Core/RetryInterceptor.cs, Invoke).
//
//  1. A failure is unhandled if the orchestrator decided nothing in the same episode.
//  2. If the episode created as many timers as failures arrived, each timer belongs to a
//     retry. Timers and failures have the same order. If the timer has zero delay, the code
//     receives the failure late, in the episode in which the timer fires.
//  3. If only failures arrived, the other decisions handle them, and the late ones.
//  4. Otherwise another event may be the cause of the decisions, and the failures count as
//     unhandled.
//
// A step is recorded in a later episode than the one that decided it.
func (x *recordedExecution) handledFailures() (handled map[int]bool, idle map[int][]int) {
	handled, idle = make(map[int]bool), make(map[int][]int)
	late := make(map[int]int) // failures by the position of the firing
	for begin := 0; begin < len(x.events); {
		end := begin + 1
		for end < len(x.events) && x.events[end].Type() != history.TypeOrchestratorStarted {
			end++
		}
		e := x.episode(begin, end, late)
		isRetry := len(e.failures) > 0 && len(e.timers) == len(e.failures)
		others, rest := e.decisions, slices.Concat(e.late, e.failures)
		if isRetry || len(e.failures) > 0 && len(e.late) > 0 {
			others -= len(e.timers)
		}
		if isRetry {
			rest = e.late
			for i, timer := range e.timers {
				created, failure := x.events[timer].(*history.TimerCreated), e.failures[i]
				if created.FireAt.After(x.events[begin].Head().Timestamp) {
					handled[failure] = true
					continue
				}
				idle[failure] = append(idle[failure], timer)
				if fired, ok := x.results[created.EventID]; ok {
					idle[failure] = append(idle[failure], fired)
					late[fired] = failure
				}
			}
		}
		for _, at := range rest {
			handled[at] = e.onlyFailures && others > 0
		}
		begin = end
	}
	return handled, idle
}

// recordedEpisode summarizes the events of one episode in a history.
type recordedEpisode struct {
	failures     []int // positions
	late         []int // positions of failures that the code receives in this episode, because their timers fired
	timers       []int // positions of created timers
	decisions    int
	onlyFailures bool // no other event arrived
}

// episode summarizes the events from begin to end. Late holds the failures that arrived in earlier
// episodes, by the position of the timer's firing that passes them to the code.
func (x *recordedExecution) episode(begin, end int, late map[int]int) recordedEpisode {
	e := recordedEpisode{onlyFailures: true, decisions: x.steps[x.events[begin].Head().Timestamp.UTC()]}
	for at := begin; at < end; at++ {
		if x.isStep(at) {
			continue
		}
		if failure, isLate := late[at]; isLate {
			e.late = append(e.late, failure)
			continue
		}
		switch event := x.events[at].(type) {
		case *history.OrchestratorStarted, *history.OrchestratorCompleted, *history.ExecutionCompleted, *history.GenericEvent:
		case *history.TimerCreated:
			e.timers = append(e.timers, at)
			e.decisions++
		default:
			switch {
			case event.Head().EventID != history.NoEventID:
				e.decisions++
			case isFailure(event):
				e.failures = append(e.failures, at)
			default:
				e.onlyFailures = false
			}
		}
	}
	return e
}
