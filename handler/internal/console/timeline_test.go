package console

import (
	"fmt"
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// at returns the header of an event at a number of seconds after noon.
func at(seconds float64, id int) history.Header {
	return history.Header{EventID: id, Timestamp: noon.Add(time.Duration(seconds * float64(time.Second)))}
}

const none = history.NoEventID

func text(s string) *string { return &s }

// describe returns a step as a line of text.
func describe(s *step) string {
	line := fmt.Sprintf("%s %q %s #%d:", s.Kind, s.Name, s.Instance, s.Position)
	for _, a := range s.Attempts {
		end := "…"
		if !a.End.IsZero() {
			end = a.End.Sub(noon).String()
		}
		line += fmt.Sprintf(" %v-%s %s", a.Begin.Sub(noon), end, a.Outcome)
	}
	return line
}

func TestSteps_MatchTheHistory(t *testing.T) {
	t.Parallel()
	started := &history.ExecutionStarted{Header: at(0, none), Name: "Order"}
	episode := func(seconds float64) history.Event { return &history.OrchestratorStarted{Header: at(seconds, none)} }
	call := text(`{"op":"add","id":"AB-1","Timestamp":"2026-01-31T12:00:00Z"}`)
	tests := map[string]struct {
		events []history.Event
		want   []string
	}{
		"activity, child and timer": {
			[]history.Event{
				episode(0), started,
				&history.TaskScheduled{Header: at(1, 0), Name: "Charge"},
				&history.SubOrchestrationInstanceCreated{Header: at(1, 1), Name: "Ship", InstanceID: "s-1"},
				&history.TimerCreated{Header: at(1, 2), FireAt: noon.Add(time.Hour)},
				&history.TaskScheduled{Header: at(1, 3), Name: "Never"},
				&history.TaskCompleted{Header: at(3, none), TaskScheduledID: 0},
				&history.SubOrchestrationInstanceFailed{Header: at(4, none), TaskScheduledID: 1},
				&history.TimerFired{Header: at(3600, none), TimerID: 2},
			},
			[]string{
				`activity "Charge"  #2: 1s-3s done`, `child "Ship" s-1 #3: 1s-4s failed`,
				`timer ""  #4: 1s-1h0m0s done`, `activity "Never"  #5: 1s-… open`,
			},
		},
		"two attempts, and the pause after the last": {
			[]history.Event{
				episode(0), started, &history.TaskScheduled{Header: at(0, 0), Name: "Charge"},
				episode(1), &history.TaskFailed{Header: at(1, none), TaskScheduledID: 0}, &history.TimerCreated{Header: at(1, 1), FireAt: noon.Add(3 * time.Second)},
				episode(3), &history.TimerFired{Header: at(3, none), TimerID: 1}, &history.TaskScheduled{Header: at(3, 2), Name: "Charge"},
				episode(4), &history.TaskFailed{Header: at(4, none), TaskScheduledID: 2}, &history.TimerCreated{Header: at(4, 3), FireAt: noon.Add(4 * time.Second)},
				episode(5), &history.TimerFired{Header: at(5, none), TimerID: 3},
			},
			[]string{`activity "Charge"  #2: 0s-1s failed 3s-4s failed`},
		},
		"two of one name that are tried again at once": {
			[]history.Event{
				episode(0), started, &history.TaskScheduled{Header: at(0, 0), Name: "A"}, &history.TaskScheduled{Header: at(0, 1), Name: "B"},
				episode(1), &history.TaskFailed{Header: at(1, none), TaskScheduledID: 1}, &history.TaskFailed{Header: at(1, none), TaskScheduledID: 0},
				&history.TimerCreated{Header: at(1, 2), FireAt: noon.Add(3 * time.Second)}, &history.TimerCreated{Header: at(1, 3), FireAt: noon.Add(3 * time.Second)},
				episode(3), &history.TimerFired{Header: at(3, none), TimerID: 2}, &history.TimerFired{Header: at(3, none), TimerID: 3},
				&history.TaskScheduled{Header: at(3, 4), Name: "B"}, &history.TaskScheduled{Header: at(3, 5), Name: "A"},
				episode(4), &history.TaskCompleted{Header: at(4, none), TaskScheduledID: 5},
			},
			[]string{`activity "A"  #2: 0s-1s failed 3s-4s done`, `activity "B"  #3: 0s-1s failed 3s-… open`},
		},
		"durable steps": {
			[]history.Event{
				episode(0), started, &history.TaskScheduled{Header: at(0, 0), Name: "A"}, &history.OrchestratorCompleted{Header: at(0, none)},
				episode(1), &history.TaskCompleted{Header: at(1, none), TaskScheduledID: 0},
				&history.TaskScheduled{Header: at(0, 1), Name: "Charge"}, &history.TaskFailed{Header: at(1, none), TaskScheduledID: 1},
				&history.TimerCreated{Header: at(1, 2), FireAt: noon.Add(3 * time.Second)}, &history.OrchestratorCompleted{Header: at(1, none)},
				episode(3), &history.TimerFired{Header: at(3, none), TimerID: 2},
				&history.TaskScheduled{Header: at(3, 3), Name: "Charge"}, &history.TaskCompleted{Header: at(4, none), TaskScheduledID: 3},
				&history.TaskScheduled{Header: at(4, 4), Name: "Once"}, history.NewStepStart(4, noon), &history.OrchestratorCompleted{Header: at(4, none)},
			},
			[]string{`activity "A"  #2: 0s-1s done`, `step "Charge"  #6: 0s-1s failed 3s-4s done`, `step "Once"  #14: 4s-… open`},
		},
		"a timer after a failure that is no retry": {
			[]history.Event{
				episode(0), started, &history.TaskScheduled{Header: at(0, 0), Name: "A"},
				episode(1), &history.TaskFailed{Header: at(1, none), TaskScheduledID: 0}, &history.TimerCreated{Header: at(1, 1), FireAt: noon.Add(3 * time.Second)},
				episode(3), &history.TimerFired{Header: at(3, none), TimerID: 1}, &history.TaskScheduled{Header: at(3, 2), Name: "B"},
			},
			[]string{`activity "A"  #2: 0s-1s failed`, `timer ""  #5: 1s-3s done`, `activity "B"  #8: 3s-… open`},
		},
		"events and entities": {
			[]history.Event{
				episode(0), started,
				&history.EventSent{Header: at(0, 0), InstanceID: "@counter@a", Name: "op", Input: call},
				&history.EventSent{Header: at(0, 1), InstanceID: "@counter@a", Name: "op", Input: text(`{"op":"hint","signal":true,"id":"2"}`)},
				&history.EventSent{Header: at(0, 2), InstanceID: "@counter@a", Name: "op", Input: text(`{"op":null,"id":"3","origin":"0123456789abcdef0123456789abcdef0123"}`)},
				&history.EventSent{Header: at(0, 3), InstanceID: "other", Name: "Hi"},
				episode(1), &history.EventRaised{Header: at(1, none), Name: "ab-1"},
				&history.EventRaised{Header: at(2, none), Name: "9", Input: text(`{"result":"x","origin":"0123456789abcdef0123456789abcdef0123"}`)},
				&history.EventRaised{Header: at(3, none), Name: "Approval", Input: text("1")},
			},
			[]string{
				`entity "add" @counter@a #2: 0s-1s done`, `entity "hint" @counter@a #3: 0s-0s done`, `entity "lock" @counter@a #4: 0s-2s done`,
				`sent "Hi" other #5: 0s-0s done`, `event "Approval"  #9: 3s-3s done`,
			},
		},
		"child that reports no result": {
			[]history.Event{
				episode(0), started,
				&history.SubOrchestrationInstanceCreated{
					Header: at(1, 0), Name: "Audit", InstanceID: "a-1", Tags: map[string]string{history.FireAndForget: ""},
				},
			},
			[]string{`child "Audit" a-1 #2: 1s-1s done`},
		},
		"what was left when it ended": {
			[]history.Event{
				episode(0), started, &history.TaskScheduled{Header: at(0, 0), Name: "A"}, &history.ExecutionSuspended{Header: at(1, none)},
				&history.ExecutionResumed{Header: at(2, none)}, &history.ExecutionTerminated{Header: at(3, none)},
				&history.ExecutionCompleted{Header: at(3, 1), Status: history.Terminated},
			},
			[]string{`activity "A"  #2: 0s-… dropped`, `control "suspended"  #3: 1s-2s done`, `control "terminated"  #5: 3s-3s done`},
		},
	}
	for name, tt := range tests {
		var got []string
		for _, s := range stepsOf(tt.events) {
			got = append(got, describe(&s))
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}

// manySteps returns n activities of one second each, two at a time. Every tenth fails.
func manySteps(n int) (all []step, end time.Time) {
	for i := range n {
		begin := noon.Add(time.Duration(i) * time.Second / 2)
		outcome := outcomeDone
		if i%10 == 9 {
			outcome = outcomeFailed
		}
		all = append(all, step{Kind: stepActivity, Name: "A", Position: i, Attempts: []attempt{{begin, begin.Add(time.Second), outcome}}})
		end = begin.Add(time.Second)
	}
	return all, end
}

func TestTimeline_ShowsAPageOfAnyNumberOfSteps(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 10, 10_000} {
		steps, end := manySteps(n)
		seen := 0
		for q := (url.Values{}); ; {
			tl := drawTimeline(steps, noon, end, q)
			if len(tl.Rows) > timelineRows || len(tl.Overview) > buckets || tl.Steps != n || tl.Shown != n {
				t.Fatalf("%d steps: %d rows, %d buckets, %d of %d shown", n, len(tl.Rows), len(tl.Overview), tl.Shown, tl.Steps)
			}
			for _, row := range tl.Rows {
				if row.Position != seen {
					t.Fatalf("%d steps: row %d stands where %d is due", n, row.Position, seen)
				}
				seen++
				for _, b := range row.Bars {
					if b.X < 0 || b.Width < smallestBar || b.X+b.Width > drawingWidth+smallestBar {
						t.Fatalf("%d steps: a bar from %v of width %v", n, b.X, b.Width)
					}
				}
			}
			if tl.Next == "" {
				break
			}
			q, _ = url.ParseQuery(tl.Next)
		}
		if seen != n {
			t.Errorf("%d of %d steps are seen", seen, n)
		}
	}
}

func TestTimeline_ZoomsToAWindow(t *testing.T) {
	t.Parallel()
	steps, end := manySteps(10_000)
	all := drawTimeline(steps, noon, end, url.Values{})
	if all.Whole != "" || all.Out != "" || all.Earlier != "" || all.Later != "" || all.Previous != "" {
		t.Errorf("there is something outside of all: %+v", all)
	}
	length := end.Sub(noon) / 10
	q, _ := url.ParseQuery(span{noon.Add(3 * length), noon.Add(4 * length)}.query(0))
	part := drawTimeline(steps, noon, end, q)
	if part.Shown < 980 || part.Shown > 1020 || part.Rows[0].Position < 2990 || part.Rows[0].Position > 3000 {
		t.Errorf("the fourth tenth has %d steps from number %d, want some 1,000 from 3,000", part.Shown, part.Rows[0].Position)
	}
	q, _ = url.ParseQuery(part.In)
	if in := drawTimeline(steps, noon, end, q); in.Shown < 490 || in.Shown > 520 {
		t.Errorf("zoomed in there are %d steps, want half of %d", in.Shown, part.Shown)
	}
	q, _ = url.ParseQuery(part.Out)
	if out := drawTimeline(steps, noon, end, q); out.Shown < 1960 || out.Shown > 2040 {
		t.Errorf("zoomed out there are %d steps, want double of %d", out.Shown, part.Shown)
	}
	q, _ = url.ParseQuery(part.Whole)
	if later := drawTimeline(steps, noon, end.Add(time.Hour), q); later.Shown != len(steps) || later.Whole != "" { // the instance runs meanwhile
		t.Errorf("the complete range has %d steps, and %q leads to more", later.Shown, later.Whole)
	}
	q, _ = url.ParseQuery(part.Later)
	if later := drawTimeline(steps, noon, end, q); !later.Window.From.After(part.Window.From) || later.Shown < 980 {
		t.Errorf("later is from %v with %d steps", later.Window.From, later.Shown)
	}
	for _, nonsense := range []url.Values{{"from": {"x"}}, {"from": {"9"}, "to": {"1"}}, {"row": {"-7"}}, {"row": {"99999999"}}, {"to": {"-9223372036854775808"}}} {
		if tl := drawTimeline(steps, noon, end, nonsense); tl.Shown != len(steps) {
			t.Errorf("%v shows %d steps, want all", nonsense, tl.Shown)
		}
	}
}

// Clocks of machines differ, and an execution may start and end at the same time.
func TestTimeline_AcceptsContradictoryTimes(t *testing.T) {
	t.Parallel()
	steps := []step{
		{Kind: stepActivity, Attempts: []attempt{{noon, noon.Add(-time.Hour), outcomeDone}}},
		{Kind: stepActivity, Attempts: []attempt{{Begin: noon.Add(-time.Hour), Outcome: outcomeOpen}}},
		{Kind: stepActivity, Attempts: []attempt{{Begin: time.Time{}, Outcome: outcomeOpen}}},
	}
	for _, end := range []time.Time{noon, noon.Add(-2 * time.Hour), {}} {
		tl := drawTimeline(steps, noon, end, url.Values{})
		if len(tl.Rows) != 3 {
			t.Errorf("%d rows, want 3", len(tl.Rows))
		}
		for _, row := range tl.Rows {
			if row.Took < 0 || len(row.Bars) != 1 {
				t.Errorf("a row takes %v and has %d bars", row.Took, len(row.Bars))
			}
		}
	}
}

func TestLengthOf_UsesTwoUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 1234567: "1.2ms", 1234 * time.Millisecond: "1.23s", 125 * time.Second: "2m 5s", 90 * time.Minute: "1h 30m",
		52 * time.Hour: "2d 4h", -time.Second: "-1s", math.MinInt64: "-106751d 23h",
	} {
		if got := lengthOf(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
}
