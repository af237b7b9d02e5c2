package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// events returns the names of all events that instances wait for.
func (a *App) events() []string {
	all := []string{"never"}
	for _, p := range a.Programs {
		for _, s := range p.Steps {
			if s.Event != "" {
				all = append(all, s.Event)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// expectOrders returns the expected entries of all ledgers.
func (a *App) expectOrders() *orders {
	e := &orders{app: a, books: map[string]book{}}
	for _, key := range a.Ledgers {
		e.books[key], e.books[archiveOf(key)] = book{}, book{}
	}
	for _, in := range a.Instances {
		e.program(Input{Path: in.ID, Program: in.Program}, in.Terminated > 0)
	}
	for _, c := range a.Signals {
		e.expect(c.Ledger, operation(c.Op), expectedEntry{order: c.Order, late: true, optional: c.Cut > 0})
	}
	return e
}

// Expect returns the expected outcome of an instance. It executes the instance's steps in sequence, without a
// hub.
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

// expect returns the expected sum of an instance; ok is false if the instance fails.
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
