package replay

import (
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// historySize measures a history. It counts the events that arrived, which are the same for an
// execution in memory and for a replay. Events that record decisions are counted as actions
// instead.
type historySize struct {
	episodes int
	arrived  int
	size     int               // bytes of text in the events that arrived
	answers  map[string]string // names of the first answers of entities, by origin
}

// eventSize is the approximate size in bytes of an event without its texts: numbers, times and
// keys.
const eventSize = 128

// add counts e if it is an event that arrived. The records that a rewind removed belong to
// actions, which are counted when the code repeats the decisions. Markers of changes are
// counted when the code asks for them. Markers of steps and answers under a second name are not
// counted.
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
		if v.isOtherName(e) {
			return
		}
		v.size += len(e.Name) + length(e.Input)
	case *history.ExecutionStarted:
		v.size += len(e.Name) + length(e.Input)
	case *history.GenericEvent:
		_, patch := history.PatchOf(e)
		if _, start := history.StepStartOf(e); patch || start || e.EventID >= 0 {
			return
		}
	}
	v.arrived++
}

// isOtherName reports whether e is an answer whose origin arrived before under another name. Such an answer
// may be the copy of an [Alias]. Only a replay receives the copy.
func (v *historySize) isOtherName(e *history.EventRaised) bool {
	origin := entity.OriginOfAnswer(e)
	if origin == "" {
		return false
	}
	if first, ok := v.answers[origin]; ok {
		return !strings.EqualFold(first, e.Name)
	}
	if v.answers == nil {
		v.answers = make(map[string]string)
	}
	v.answers[strings.Clone(origin)] = e.Name // the origin is part of the content, which may be long
	return false
}

func length(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}
