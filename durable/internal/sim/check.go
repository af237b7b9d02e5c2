package sim

import (
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// CheckHistory returns what must not be about the history of an execution that
// has ended: what was begun must have come to its end once and not more often.
// What an instance that was terminated began may be open, and so may timers, and
// what was begun by branches that nobody waited for.
func CheckHistory(past []history.Event, terminated bool) (faults []string) {
	begun, ended := map[int]history.EventType{}, map[int]int{}
	completions, brackets := 0, 0
	for _, e := range past {
		switch e := e.(type) {
		case *history.TaskScheduled, *history.SubOrchestrationInstanceCreated, *history.TimerCreated:
			id := e.Head().EventID
			if t, again := begun[id]; again {
				faults = append(faults, fmt.Sprintf("event %d is %v and %v", id, t, e.Type()))
			}
			begun[id] = e.Type()
		case *history.ExecutionCompleted, *history.ExecutionTerminated:
			completions++
		case *history.OrchestratorStarted:
			brackets++
		case *history.OrchestratorCompleted:
			brackets--
		}
		if id, ok := history.Completes(e); ok {
			ended[id]++
			if _, ok := begun[id]; !ok {
				faults = append(faults, fmt.Sprintf("%v of event %d, which is not before it", e.Type(), id))
			}
		}
	}
	if completions == 0 && !(terminated && len(past) == 0) { // it was terminated before it began
		faults = append(faults, "it has no end")
	}
	if brackets > 0 || brackets < -1 { // one that continued as new is closed twice, as in .NET
		faults = append(faults, fmt.Sprintf("%+d episodes are not closed", brackets))
	}
	faults = append(faults, checkTerminatedFirst(past)...)
	for id, t := range begun {
		n := ended[id]
		mayBeOpen := terminated || t == history.TypeTimerCreated
		if n > 1 || n == 0 && !mayBeOpen {
			faults = append(faults, fmt.Sprintf("%v %d was completed %d times", t, id, n))
		}
	}
	slices.Sort(faults)
	return faults
}

// checkTerminatedFirst returns what must not be about an execution whose first
// episode has its termination: that runs no code, which would decide something, or
// end the execution in a way of its own.
func checkTerminatedFirst(past []history.Event) (faults []string) {
	terminated := false
	for _, e := range past {
		switch e := e.(type) {
		case *history.OrchestratorCompleted:
			return faults
		case *history.ExecutionTerminated:
			terminated = true
		case *history.ExecutionCompleted:
			if terminated && e.Status != history.Terminated {
				faults = append(faults, fmt.Sprintf("it is %v although it was terminated before it began", e.Status))
			}
		case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated, *history.EventSent:
			if terminated {
				faults = append(faults, fmt.Sprintf("it decided on %v although it was terminated before it began", e.Type()))
			}
		}
	}
	return faults
}

// purger is the name of the client that dies while it purges.
const purger = "purger"
