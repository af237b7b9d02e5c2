package sim

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Outcome is how an instance ends.
type Outcome struct {
	Status history.RuntimeStatus
	Sum    uint64 // if it completed
}

// Expect returns how an instance must end: it does what the instance does, one
// step after the other, without a hub.
func (a *App) Expect(in Instance) Outcome {
	if in.Terminated > 0 {
		return Outcome{Status: history.Terminated}
	}
	if in.Unknown {
		return Outcome{Status: history.Failed}
	}
	sum, ok := a.expect(Input{Path: in.ID, Program: in.Program})
	if !ok {
		return Outcome{Status: history.Failed}
	}
	return Outcome{Status: history.Completed, Sum: sum}
}

// expect returns the output of an instance; ok is false if it fails.
func (a *App) expect(in Input) (sum uint64, ok bool) {
	p := a.Programs[in.Program]
	for in.Round = range p.Rounds + 1 {
		for i, s := range p.Steps {
			in.Sum = fold(in.Sum, a.expectStep(in, i, s))
		}
	}
	return in.Sum, !p.Fails
}

func (a *App) expectStep(in Input, i int, s Step) string {
	result := func(n int) string {
		t := Task{Key: fmt.Sprintf("%s/%d/%d/%d", in.Path, in.Round, i, n)}
		if s.Kind == BigStep || a.Large {
			t.Big = "x"
		}
		return t.Result()
	}
	switch s.Kind {
	case CallStep, BigStep:
		return result(0)
	case FailStep, RetryStep:
		return "failed"
	case FanOutStep:
		all := make([]string, s.Count)
		for n := range all {
			all[n] = result(n)
		}
		return strings.Join(all, ",")
	case SleepStep:
		return "slept"
	case EventStep, DeadlineStep:
		return a.padded(s.Event + " raised")
	case ReceiveStep:
		return a.padded(s.Event + " sent")
	case TimeoutStep:
		return "timeout"
	case ChildStep, ChildrenStep:
		return a.expectChildren(in, i, s)
	case BranchStep:
		return result(0) + result(1) + "," + result(2) + result(3)
	case SendStep:
		return "sent"
	case StatusStep:
		return "status"
	case LedgerStep:
		return "acted"
	case stepKinds:
	}
	return ""
}

func (a *App) expectChildren(in Input, i int, s Step) string {
	all := make([]string, s.Count)
	for n := range all {
		sum, ok := a.expect(Input{Path: childPath(in.Path, in.Round, i, n), Program: s.Child})
		all[n] = fmt.Sprint(sum)
		if !ok {
			all[n] = "child failed"
		}
	}
	return strings.Join(all, ",")
}
