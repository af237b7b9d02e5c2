package durabletest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

const advice = "An orchestrator must do the same whenever it is run: take time and UUIDs from its Context, and leave random numbers, " +
	"variables that others change, environment variables and I/O to activities. Ranging over a map has no order."

// describeDivergence says how a history differs from what code does.
func describeDivergence(d *replay.NonDeterminismError) string {
	return fmt.Sprintf("\tdecision %d\n\thistory has:  %s\n\tthe code did: %s\n%s", d.ActionID, orNothing(d.Recorded), orNothing(d.Produced), d)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// compare returns the first difference between two outcomes of one episode,
// empty if there is none.
func compare(first, again replay.Outcome) string {
	for i := range max(len(first.Actions), len(again.Actions)) {
		var a, b replay.Action
		if i < len(first.Actions) {
			a = withoutStack(first.Actions[i])
		}
		if i < len(again.Actions) {
			b = withoutStack(again.Actions[i])
		}
		if reflect.DeepEqual(a, b) {
			continue
		}
		id := 0
		if a != nil {
			id = a.ActionID()
		} else {
			id = b.ActionID()
		}
		before, after := describe(a), describe(b)
		if before == after {
			before, after = fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b)
		}
		return fmt.Sprintf("\tdecision %d\n\tat first: %s\n\tagain:    %s", id, before, after)
	}
	if !reflect.DeepEqual(first.CustomStatus, again.CustomStatus) {
		return fmt.Sprintf("\tcustom status\n\tat first: %s\n\tagain:    %s", show(first.CustomStatus), show(again.CustomStatus))
	}
	return ""
}

// withoutStack takes out what differs from run to run: the addresses in the
// stack of a panic.
func withoutStack(a replay.Action) replay.Action {
	end, ok := a.(*replay.Complete)
	if !ok || end.Failure == nil || end.Failure.StackTrace == nil {
		return a
	}
	end = new(*end)
	end.Failure = new(*end.Failure)
	end.Failure.StackTrace = nil
	return end
}

// describe returns an action in words.
func describe(a replay.Action) string {
	switch a := a.(type) {
	case nil:
		return "nothing"
	case *replay.ScheduleTask:
		return fmt.Sprintf("activity %s with input %s", a.Name, show(a.Input))
	case *replay.CreateTimer:
		return "timer until " + stamp(a.FireAt)
	case *replay.CreateSubOrchestration:
		if a.InstanceID == "" {
			return fmt.Sprintf("sub-orchestration %s with input %s", a.Name, show(a.Input))
		}
		return fmt.Sprintf("sub-orchestration %s %q with input %s", a.Name, a.InstanceID, show(a.Input))
	case *replay.SendEvent:
		if history.IsEntity(a.InstanceID) {
			return fmt.Sprintf("%s to entity %q", describeRequest(a.Name, a.Input), a.InstanceID)
		}
		return fmt.Sprintf("event %s for instance %q with payload %s", a.Name, a.InstanceID, show(a.Input))
	case *replay.Complete:
		return fmt.Sprintf("the end: %s with %s", a.Status, show(a.Result))
	default:
		return fmt.Sprintf("%+v", a)
	}
}

// episodesIn returns how many episodes a history has.
func episodesIn(events []history.Event) int {
	n := 0
	for _, e := range events {
		if e.Type() == history.TypeOrchestratorStarted {
			n++
		}
	}
	return n
}

// show returns a payload for people, cut if it is long.
func show(s *string) string {
	const most = 500
	switch {
	case s == nil:
		return "none"
	case len(*s) > most:
		return fmt.Sprintf("%s… (%d bytes)", (*s)[:most], len(*s))
	default:
		return *s
	}
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
