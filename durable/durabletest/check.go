package durabletest

import (
	"fmt"
	"reflect"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

const advice = "An orchestrator must do the same whenever it is run: take time and UUIDs from its Context, and leave random numbers, " +
	"variables that others change, environment variables and I/O to activities. Ranging over a map has no order."

// compare returns the first difference between two outcomes of one episode, or an empty string.
func compare(first, again replay.Outcome) string {
	for i := range max(len(first.Actions), len(again.Actions)) {
		var a, b replay.Action
		if i < len(first.Actions) {
			a = plain(first.Actions[i])
		}
		if i < len(again.Actions) {
			b = plain(again.Actions[i])
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
		before, after := explain.Action(a), explain.Action(b)
		if before == after {
			before, after = fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b)
		}
		return fmt.Sprintf("\tdecision %d\n\tfirst run: %s\n\treplay:    %s", id, before, after)
	}
	if !reflect.DeepEqual(first.Patched, again.Patched) {
		return fmt.Sprintf("\tcalls of Patched that were true\n\tfirst run: %q\n\treplay:    %q", first.Patched, again.Patched)
	}
	if !reflect.DeepEqual(first.CustomStatus, again.CustomStatus) {
		return fmt.Sprintf("\tcustom status\n\tfirst run: %s\n\treplay:    %s", explain.Payload(first.CustomStatus), explain.Payload(again.CustomStatus))
	}
	return ""
}

// plain returns a without the stack of a panic, whose addresses differ in each run, and without the
// function of a step.
func plain(a replay.Action) replay.Action {
	if step, ok := a.(*replay.RunStep); ok {
		step = new(*step)
		step.Func = nil
		return step
	}
	end, ok := a.(*replay.Complete)
	if !ok || end.Failure == nil || end.Failure.StackTrace == nil {
		return a
	}
	end = new(*end)
	end.Failure = new(*end.Failure)
	end.Failure.StackTrace = nil
	return end
}

// episodesIn returns the number of episodes in a history.
func episodesIn(events []history.Event) int {
	n := 0
	for _, e := range events {
		if e.Type() == history.TypeOrchestratorStarted {
			n++
		}
	}
	return n
}
