package provider

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// recordedExecution is a history, read for what rewinding has to know of it.
type recordedExecution struct {
	events []history.Event
	start  *history.ExecutionStarted   // nil if there is none
	end    *history.ExecutionCompleted // nil while it goes on
	endAt  int

	decided  map[int]int // places of activities, timers and children, by action
	answered map[int]int // places of their completions and failures, by action
}

// recordedChild is a child that was started.
type recordedChild struct {
	at     int // place of event
	event  *history.SubOrchestrationInstanceCreated
	failed bool // its failure is taken out; else there is no completion of it
}

func read(events []history.Event) *recordedExecution {
	x := &recordedExecution{events: events, decided: make(map[int]int), answered: make(map[int]int)}
	for at, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			x.start = e
		case *history.ExecutionCompleted:
			x.end, x.endAt = e, at
		case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated:
			x.decided[e.Head().EventID] = at
		default:
			if id, ok := history.Completes(e); ok {
				x.answered[id] = at
			}
		}
	}
	return x
}

func isFailure(e history.Event) bool {
	switch e.(type) {
	case *history.TaskFailed, *history.SubOrchestrationInstanceFailed:
		return true
	}
	return false
}

// rewound returns what to take out of the history of an execution that has
// ended, but for its children.
func (x *recordedExecution) rewound(now time.Time) rewindChanges {
	c := rewindChanges{}
	c.takeOut(x.endAt)
	answered, idle := x.answeredFailures()
	for _, at := range idle {
		c.takeOut(at)
	}
	for at, e := range x.events {
		id := e.Head().EventID
		_, hasAnswer := x.answered[id]
		switch e := e.(type) {
		case *history.ExecutionTerminated:
			c.takeOut(at)
		case *history.TaskFailed:
			if answered[at] {
				continue
			}
			c.takeOut(at)
			// It is not there if an earlier rewind was cut off.
			if scheduled, ok := x.decided[e.TaskScheduledID]; ok {
				c.takeOut(scheduled)
			}
			c.again = true
		case *history.SubOrchestrationInstanceFailed:
			if !answered[at] {
				c.takeOut(at)
			}
		case *history.TaskScheduled:
			if !hasAnswer {
				c.takeOut(at)
				c.again = true
			}
		case *history.TimerCreated:
			if !hasAnswer && !e.FireAt.After(now) {
				c.takeOut(at)
				c.again = true
			}
		}
	}
	return c
}

// children returns the children whose failure c takes out, and those that x
// still waits for.
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
		answer, hasAnswer := x.answered[created.EventID]
		if !hasAnswer || c.out[answer] {
			children = append(children, recordedChild{at: at, event: created, failed: hasAnswer})
		}
	}
	return children
}

// answeredFailures returns the places of the failures that the orchestrator
// answered by deciding something else, as far as a history can tell: it says
// which events arrived together and what was decided then, but not which led to
// what. idle are the places of what belongs to the others: the timer without
// length that DurableTask makes after the last attempt of a retry, and its
// firing (DurableTask.Core/RetryInterceptor.cs, Invoke).
//
//  1. What arrived while nothing was decided was not answered.
//  2. If as many timers were made as failures arrived, they are those of
//     retries, in the same order.
//  3. If nothing but failures arrived, what was decided answers them.
//  4. Otherwise something else may have been the cause.
func (x *recordedExecution) answeredFailures() (answered map[int]bool, idle []int) {
	answered = make(map[int]bool)
	for begin := 0; begin < len(x.events); {
		end := begin + 1
		for end < len(x.events) && x.events[end].Type() != history.TypeOrchestratorStarted {
			end++
		}
		e := x.episode(begin, end)
		switch {
		case len(e.failures) == 0 || e.decisions == 0:
		case len(e.timers) == len(e.failures):
			for i, timer := range e.timers {
				created := x.events[timer].(*history.TimerCreated)
				if created.FireAt.After(x.events[begin].Head().Timestamp) {
					answered[e.failures[i]] = true
					continue
				}
				idle = append(idle, timer)
				if fired, ok := x.answered[created.EventID]; ok {
					idle = append(idle, fired)
				}
			}
		case e.onlyFailures:
			for _, at := range e.failures {
				answered[at] = true
			}
		}
		begin = end
	}
	return answered, idle
}

// recordedEpisode is what a history has of one episode.
type recordedEpisode struct {
	failures     []int // places
	timers       []int // places of those made
	decisions    int
	onlyFailures bool // nothing else arrived
}

func (x *recordedExecution) episode(begin, end int) recordedEpisode {
	e := recordedEpisode{onlyFailures: true}
	for at := begin; at < end; at++ {
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
