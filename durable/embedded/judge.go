package embedded

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A verdict says what becomes of a message that its instance could be handed.
type verdict int

const (
	take verdict = iota // hand it out
	hold                // keep it until the instance has got further
	drop                // nobody wants it
)

// A standing is what an instance's row and history say, as far as it decides
// on messages.
type standing struct {
	known     bool // the hub has the instance
	execution string
	status    history.RuntimeStatus
	begun     bool // the current execution has a history
	// starting says that the start of the current execution, which has not
	// begun, is at hand.
	starting bool
	// scheduled reports whether the history has the event of an action.
	scheduled func(id int) (bool, error)
}

// judge decides on a message.
//
//  1. A start is wanted unless its execution has begun already. One of another
//     execution than the current waits until that has begun; then it is the
//     engine's to refuse.
//  2. An instance that is not known takes what does not complete anything: the
//     engine decides whether it begins with that, as entities do.
//  3. An instance that has ended takes nothing.
//  4. A message that names another execution than the current one is not wanted.
//  5. Nothing comes before the start.
//  6. A completion waits until the history has the event that scheduled it
//     (DurableTask.AzureStorage/Messaging/OrchestrationSession.cs,
//     IsOutOfOrderMessage). The hub vouches for completions of its own timers
//     and activities: they came with that event.
//
// The error is that of reading the history.
func judge(s standing, m provider.TaskMessage, vouched bool) (verdict, error) {
	completed, completes := history.Completes(m.Event)
	_, starts := m.Event.(*history.ExecutionStarted)
	switch {
	case starts && s.known && m.Target.ExecutionID == s.execution:
		if s.begun {
			return drop, nil
		}
		return take, nil
	case starts:
		if s.known && !s.begun {
			return hold, nil
		}
		return take, nil
	case !s.known:
		if completes {
			return drop, nil
		}
		return take, nil
	case s.status.IsTerminal():
		return drop, nil
	case m.Target.ExecutionID != "" && m.Target.ExecutionID != s.execution:
		return drop, nil
	case !s.begun && !s.starting:
		return hold, nil
	case !completes || vouched && s.begun:
		return take, nil
	case !s.begun:
		return hold, nil
	}
	scheduled, err := s.scheduled(completed)
	if err != nil || !scheduled {
		return hold, err
	}
	return take, nil
}
