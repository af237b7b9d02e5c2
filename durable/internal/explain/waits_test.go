package explain_test

import (
	_ "embed" // waits_test.go
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/explain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

var began = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// past returns the history of an instance that starts with its start. Each argument is an
// episode.
func past(episodes ...[]history.Event) (all []history.Event) {
	start := &history.ExecutionStarted{Header: history.NewHeader(began), Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}, Name: "O"}
	for i, events := range episodes {
		at := history.NewHeader(began.Add(time.Duration(i) * time.Hour))
		all = append(all, &history.OrchestratorStarted{Header: at})
		if i == 0 {
			all = append(all, start)
		}
		all = append(append(all, events...), &history.OrchestratorCompleted{Header: at})
	}
	return all
}

func timerCreated(id int, fireAt time.Time) *history.TimerCreated {
	return &history.TimerCreated{Header: history.Header{EventID: id, Timestamp: began}, FireAt: fireAt}
}

func sleep(d time.Duration) replay.Code {
	return func(x *replay.Execution, _ *string) (*string, error) {
		timer := new(replay.Future)
		x.CreateTimer(timer, x.Now().Add(d)) // decides
		timer.Await()                        // waits
		return nil, nil
	}
}

// All legs of a long timer are reported as one timer, including the last leg.
func TestWaits_ReportALongTimerAsOne(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	whole := began.Add(10 * day)
	legs := [][]history.Event{{timerCreated(0, began.Add(3*day))}}
	for i, end := range []time.Time{began.Add(6 * day), whole} {
		at := began.Add(time.Duration(i+1) * 3 * day)
		legs = append(legs, []history.Event{&history.TimerFired{Header: history.NewHeader(at), TimerID: i, FireAt: at}, timerCreated(i+1, end)})
	}
	for n := range legs {
		events := past(legs[:n+1]...)
		for _, e := range events {
			if e, ok := e.(*history.OrchestratorStarted); ok {
				e.Timestamp = began.Add(e.Timestamp.Sub(began) * 72)
			}
		}
		waits, difference := explain.Waits(sleep(10*day), events)
		if difference != nil || len(waits) != 1 || !waits[0].Due.Equal(whole) || !waits[0].Since.Equal(began) || waits[0].Task != n {
			t.Errorf("in leg %d: %+v (%v); want a timer from %v to %v", n, waits, difference, began, whole)
		}
	}
}

// A second suspension event does not start a new suspension.
func TestSuspensionOf_StartsWithTheFirstUnresumedSuspension(t *testing.T) {
	t.Parallel()
	at := func(hours int) history.Header { return history.NewHeader(began.Add(time.Duration(hours) * time.Hour)) }
	events := past([]history.Event{
		&history.ExecutionSuspended{Header: at(1)}, &history.ExecutionResumed{Header: at(2)},
		&history.ExecutionSuspended{Header: at(3), Reason: new("an audit")}, &history.ExecutionSuspended{Header: at(4), Reason: new("a check")},
	})
	s := explain.SuspensionOf(events)
	if s == nil || !s.Since.Equal(at(3).Timestamp) || s.Reason == nil || *s.Reason != "a check" {
		t.Errorf("the suspension is %+v", s)
	}
	if s := explain.SuspensionOf(append(events, &history.ExecutionResumed{Header: at(5)})); s != nil {
		t.Errorf("the resumed instance has the suspension %+v", s)
	}
}

//go:embed waits_test.go
var source string

// line returns the first line of this file that ends with a comment.
func line(comment string) []string {
	before, _, _ := strings.Cut(source, " // "+comment+"\n")
	return []string{fmt.Sprintf("waits_test.go:%d", strings.Count(before, "\n")+1)}
}

// If the code made a decision that differs, its line is reported; otherwise the line that
// waits.
func TestWaits_ReportTheLineThatDiffers(t *testing.T) {
	t.Parallel()
	scheduled := func(id int) *history.TaskScheduled {
		return &history.TaskScheduled{Header: history.Header{EventID: id, Timestamp: began}, Name: "A"}
	}
	for name, c := range map[string]struct {
		events []history.Event
		want   []string
	}{
		"another decision":  {past([]history.Event{scheduled(0)}), line("decides")},
		"one decision less": {past([]history.Event{timerCreated(0, began.Add(time.Hour)), scheduled(1)}), line("waits")},
	} {
		waits, difference := explain.Waits(sleep(time.Hour), c.events)
		if difference == nil || len(waits) > 0 || !slices.Equal(difference.Where, c.want) || !strings.Contains(difference.String(), ", at "+c.want[0]+"\n") {
			t.Errorf("%s: %+v, %+v; want %v", name, waits, difference, c.want)
		}
	}
}

// Without the code, all children without a result are reported, except those that report none.
func TestWaits_ChildrenThatReportNoResultAreNotReported(t *testing.T) {
	t.Parallel()
	child := func(id int, tags map[string]string) *history.SubOrchestrationInstanceCreated {
		return &history.SubOrchestrationInstanceCreated{Header: history.Header{EventID: id, Timestamp: began}, Name: "C", InstanceID: "c", Tags: tags}
	}
	events := past([]history.Event{child(0, map[string]string{history.FireAndForget: ""}), child(1, map[string]string{"a": "b"})})
	if waits, _ := explain.Waits(nil, events); len(waits) != 1 || waits[0].Task != 1 || waits[0].Kind != explain.SubOrchestration {
		t.Errorf("the waits are %+v, want only the child of action 1", waits)
	}
}

// A suspended instance waits three times for one event, and two have arrived. The two newest waits get them.
func TestWaits_HeldEventsBelongToTheNewestWaits(t *testing.T) {
	t.Parallel()
	code := func(x *replay.Execution, _ *string) (*string, error) {
		waits := make([]*replay.Future, 3)
		for i := range waits {
			waits[i] = new(replay.Future)
			x.WaitEvent(waits[i], "E")
		}
		x.AwaitAny(waits)
		return nil, nil
	}
	at := history.NewHeader(began.Add(time.Hour))
	events := past(nil, []history.Event{
		&history.ExecutionSuspended{Header: at}, &history.EventRaised{Header: at, Name: "e"}, &history.EventRaised{Header: at, Name: "E"},
	})
	waits, difference := explain.Waits(code, events)
	var held []bool
	for _, w := range waits {
		held = append(held, w.IsOutcomeStored)
	}
	if want := []bool{false, true, true}; difference != nil || !slices.Equal(held, want) {
		t.Errorf("waits with a held event: %v (%v), want %v", held, difference, want)
	}
}
