package sim

import (
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// CheckHistory returns the faults in the history of an execution that has ended. Everything that was started
// must have completed exactly once. A terminated execution may leave work open. Timers may always stay open.
func CheckHistory(past []history.Event, terminated bool) (faults []string) {
	begun, ended := map[int]history.EventType{}, map[int]int{}
	completions, brackets, episode := 0, 0, 0
	for i, e := range past {
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
			if brackets > 0 && i-episode >= longEpisode {
				brackets-- // a crash interrupted the previous episode between two transactions
			}
			brackets++
			episode = i
		case *history.OrchestratorCompleted:
			if i+1 == len(past) || past[i+1].Type() == history.TypeOrchestratorStarted {
				brackets--
			}
		}
		if id, ok := history.Completes(e); ok {
			ended[id]++
			if _, ok := begun[id]; !ok {
				faults = append(faults, fmt.Sprintf("%v of event %d, which does not precede it", e.Type(), id))
			}
		}
	}
	if completions == 0 && !(terminated && len(past) == 0) { // terminated before its first episode
		faults = append(faults, "the history has no end")
	}
	if brackets != 0 {
		faults = append(faults, fmt.Sprintf("the number of started episodes minus completed episodes is %d", brackets))
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

// checkTerminatedFirst returns the faults of an execution that was terminated in its first episode. Such an
// execution runs no code: it must decide nothing and end with the status Terminated.
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
				faults = append(faults, fmt.Sprintf("status is %v although the execution was terminated before its first episode", e.Status))
			}
		case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated, *history.EventSent:
			if terminated {
				faults = append(faults, fmt.Sprintf("the orchestrator decided %v although the execution was terminated before its first episode", e.Type()))
			}
		}
	}
	return faults
}

// longEpisode is the number of events from which a crash may interrupt an episode between two
// transactions of its checkpoint.
const longEpisode = 90

// purger is the name of the client that crashes during a purge.
const purger = "purger"
