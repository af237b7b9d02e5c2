package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Difference is the first place where an orchestrator's code differs from its history.
type Difference struct {
	Decision  int               // the number of the action that differs, counted from 0
	Event     int               // the index of its event; the number of events if it has none
	Events    int               // the number of events in the history
	Episode   int               // the episode of the event, counted from 0
	EventType history.EventType // of the event
	At        time.Time         // when the event was recorded; zero without an event
	Recorded  string            // the recorded action
	Produced  string            // the action of the code
	Where     []string          // the lines that differ or wait, such as "order.go:103"; nil if unknown

	// Err is nil if only the ends of the execution differ.
	Err *replay.NonDeterminismError
}

// Divergence returns d as a Difference without a place in a history.
func Divergence(d *replay.NonDeterminismError) *Difference {
	return &Difference{Decision: d.ActionID, Recorded: cmp.Or(d.Recorded, "nothing"), Produced: cmp.Or(d.Produced, "nothing"), Err: d}
}

// String describes the place and the difference in several lines.
func (d *Difference) String() string {
	text := ""
	switch {
	case d.Event < d.Events:
		text = fmt.Sprintf("\tevent %d of %d, in episode %d, at %s: %s\n", d.Event, d.Events, d.Episode, Time(d.At), d.EventType)
	case d.Events > 0:
		text = fmt.Sprintf("\tafter the %d events of the history\n", d.Events)
	}
	text += fmt.Sprintf("\tdecision %d\n\thistory has:  %s\n\tthe code did: %s", d.Decision, d.Recorded, d.Produced)
	if len(d.Where) > 0 {
		text += ", at " + strings.Join(d.Where, " ")
	}
	if d.Err != nil {
		text += "\n" + d.Err.Error()
	}
	return text + "\n\tto be compatible, the code must " + d.CompatibleChange()
}

// CompatibleChange returns which change of the code would have been compatible with the
// history, as the rest of "the code must …".
func (d *Difference) CompatibleChange() string {
	switch {
	case d.Err == nil:
		return "end as recorded, and differently only where Context.Patched returns true"
	case d.Err.Produced == "":
		return "keep the recorded action, and skip it only where Context.Patched returns true"
	case d.Err.Recorded == "":
		return "perform the new action only where Context.Patched returns true"
	}
	return "perform the recorded action first, and the new one only where Context.Patched returns true"
}

// locate sets the event of the decision in a history.
func (d *Difference) locate(events []history.Event) *Difference {
	d.Events, d.Event = len(events), len(events)
	episode := -1
	for i, e := range events {
		if e.Type() == history.TypeOrchestratorStarted {
			episode++
		}
		if e.Head().EventID == d.Decision {
			d.Event, d.Episode, d.EventType, d.At = i, max(episode, 0), e.Type(), e.Head().Timestamp
			break
		}
	}
	return d
}

// Compare replays a history in x, which must be new, and returns the first difference or nil.
// If the execution has ended, it compares the ends, too. Without a difference it returns the names of
// the activities that the history waits for and that the code calls as steps.
func Compare(x *replay.Execution, events []history.Event) (*Difference, []string) {
	if neverRan(events) {
		return nil, nil
	}
	past, end := untilEnd(events)
	x.TraceWaits()
	outcome := x.Episode(past, nil)
	if fits, o := x.Refit(past, nil); fits != nil {
		defer fits.Close()
		x, outcome = fits, o
	}
	if d := divergence(x, events); d != nil {
		return d, nil
	}
	if end == nil {
		return nil, activitiesOfSteps(x, events)
	}
	if len(outcome.Actions) == 0 && x.IsSuspended() { // the suspension arrived with the episode that ended
		outcome = x.Episode(nil, []history.Event{&history.ExecutionResumed{Header: history.NewHeader(end.Timestamp)}})
	}
	return compareEnds(events, end, outcome, x), nil
}

// activitiesOfSteps returns the names of the incomplete activities that the code of x calls as steps.
func activitiesOfSteps(x *replay.Execution, events []history.Event) (names []string) {
	open := incompleteTasks(events)
	for _, f := range x.IncompleteFutures() {
		if w := open[f.ID()]; f.IsStep() && w.Kind == Activity && !w.IsOutcomeStored {
			names = append(names, w.Name)
		}
	}
	return names
}

// divergence returns the first difference between x and the history that it replayed, or nil.
func divergence(x *replay.Execution, events []history.Event) *Difference {
	d := x.Divergence()
	if d == nil {
		return nil
	}
	difference := Divergence(d).locate(events)
	difference.Where = sourceLines(x.DivergenceStacks())
	return difference
}

// untilEnd returns the events before the end of the execution, and the end, which is nil if the
// execution has not ended.
func untilEnd(events []history.Event) (past []history.Event, end *history.ExecutionCompleted) {
	for i, e := range events {
		if c, ok := e.(*history.ExecutionCompleted); ok {
			return events[:i], c
		}
	}
	return events, nil
}

// neverRan reports whether the instance was terminated in its first episode, before its code
// ran.
func neverRan(events []history.Event) bool {
	terminated := false
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionTerminated:
			terminated = true
		case *history.OrchestratorCompleted, *history.ExecutionCompleted:
			return terminated
		default:
			if e.Head().EventID >= 0 {
				return false
			}
		}
	}
	return terminated
}

// compareEnds returns the difference between the end of a history and what the code does there,
// or nil.
func compareEnds(events []history.Event, end *history.ExecutionCompleted, outcome replay.Outcome, x *replay.Execution) *Difference {
	actions := outcome.Actions
	if events[len(events)-1].Head().IsPlayed { // the unrecorded steps may be activities in this code
		actions = slices.DeleteFunc(slices.Clone(actions), func(a replay.Action) bool {
			_, isActivity := a.(*replay.ScheduleTask)
			return isActivity
		})
	}
	var did replay.Action
	if len(actions) > 0 {
		did = actions[0]
	}
	if c, ok := did.(*replay.Complete); ok && c.Status == end.Status {
		return nil
	}
	code := Action(did)
	var where []string
	if did == nil {
		code, where = "nothing", sourceLines(x.ParkedStacks())
		for _, f := range append(x.IncompleteFutures(), x.EventWaits()...) {
			if f.IsAwaited() {
				code += fmt.Sprintf("; it waits for %s", f)
				break
			}
		}
	}
	d := &Difference{Decision: end.EventID, Recorded: Action(&replay.Complete{Status: end.Status, Result: end.Result}), Produced: code, Where: where}
	return d.locate(events)
}
