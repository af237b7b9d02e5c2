package replay

import "github.com/durablefunctions-go/durablefunctions/durable/history"

// historySize is how long and how large a history has become. It counts what is the
// same for an execution in memory and for one that replays: events that
// arrived, and not those that record decisions, which are counted as actions.
type historySize struct {
	episodes int
	arrived  int
	size     int // of what arrived
}

// eventSize is how much an event counts for besides its texts: roughly what its
// numbers, times and keys take.
const eventSize = 128

// add counts an event. The records that a rewind took away are those of
// actions, which are counted when they are decided on again; markers of changes are
// counted when the code asks for them.
func (v *historySize) add(e history.Event) {
	switch e := e.(type) {
	case *history.OrchestratorStarted:
		v.episodes++
		return
	case *history.OrchestratorCompleted, *history.ExecutionCompleted, *history.ContinueAsNew,
		*history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated, *history.EventSent:
		return
	case *history.TaskCompleted:
		v.size += length(e.Result)
	case *history.SubOrchestrationInstanceCompleted:
		v.size += length(e.Result)
	case *history.TaskFailed:
		v.size += length(e.Reason)
	case *history.SubOrchestrationInstanceFailed:
		v.size += length(e.Reason)
	case *history.EventRaised:
		v.size += len(e.Name) + length(e.Input)
	case *history.ExecutionStarted:
		v.size += len(e.Name) + length(e.Input)
	case *history.GenericEvent:
		if _, marker := history.PatchOf(e); marker || e.EventID >= 0 {
			return
		}
	}
	v.arrived++
}

func length(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}
