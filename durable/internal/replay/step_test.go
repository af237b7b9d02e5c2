package replay_test

import (
	"fmt"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

// decide decides a step.
func decide(x *replay.Execution, name string) *replay.Future {
	f := new(replay.Future)
	x.RunStep(f, &replay.RunStep{Name: name, Attempt: 1})
	return f
}

// open returns the OrchestratorCompleted of an episode that leaves steps unrecorded.
func open() history.Event { return played() }

// pair returns the record of a step.
func pair(id int, name string) []history.Event {
	return []history.Event{task(id, name), replaytest.Done(id, fmt.Sprintf("%q", name))}
}

// cat concatenates events and slices of events.
func cat(parts ...any) (all []history.Event) {
	for _, p := range parts {
		switch p := p.(type) {
		case history.Event:
			all = append(all, p)
		case []history.Event:
			all = append(all, p...)
		}
	}
	return all
}

func describeSteps(o replay.Outcome) (all []string) {
	for _, s := range o.Steps {
		all = append(all, fmt.Sprint(s.ID, " ", s.Name))
	}
	return all
}

func wantSteps(t *testing.T, o replay.Outcome, want ...string) {
	t.Helper()
	if diff := cmp.Diff(describeSteps(o), want); diff != "" {
		t.Errorf("steps (-got +want):\n%s", diff)
	}
}

// threeSteps runs three steps, one after the other.
func threeSteps(x *replay.Execution, _ *string) (*string, error) {
	for _, name := range []string{"A", "B", "C"} {
		decide(x, name).Await()
	}
	return new("end"), nil
}

func TestStep_IsRecordedWhenItHasEnded(t *testing.T) {
	t.Parallel()
	x := replay.New(history.OrchestrationInstance{InstanceID: "abc", ExecutionID: "e0"}, threeSteps)
	defer x.Close()
	o := x.Episode(nil, cat(begin(), start()))
	wantActions(t, o.Actions)
	wantSteps(t, o, "0 A")
	for i, next := range []string{"1 B", "2 C"} {
		o = x.Episode(nil, cat(begin(), pair(i, string(rune('A'+i)))))
		wantActions(t, o.Actions)
		wantSteps(t, o, next)
		if !x.HasUnrecordedSteps() {
			t.Error("the execution has no unrecorded step")
		}
	}
	o = x.Episode(nil, cat(begin(), pair(2, "C")))
	wantActions(t, o.Actions, "3 Completed end")
	wantSteps(t, o)
	if x.HasUnrecordedSteps() {
		t.Error("a step is unrecorded at the end")
	}
}

func TestStep_ReplaysEachPartOfItsHistory(t *testing.T) {
	t.Parallel()
	all := [][]history.Event{
		cat(begin(), start(), open()),
		cat(begin(), pair(0, "A"), open()),
		cat(begin(), pair(1, "B"), open()),
	}
	var past []history.Event
	for i, next := range []string{"0 A", "1 B", "2 C"} {
		past = append(past, all[i]...)
		o := run(t, threeSteps, past)
		wantActions(t, o.Actions)
		wantSteps(t, o, next)
	}
	// A crash between the parts of a commit leaves an episode without its end.
	o := run(t, threeSteps, past[:len(past)-1])
	wantSteps(t, o, "2 C")
}

func TestStep_EndsWhileOtherDecisionsAreRecorded(t *testing.T) {
	t.Parallel()
	both := func(x *replay.Execution, _ *string) (*string, error) {
		step := decide(x, "S")
		for _, name := range []string{"A", "B"} {
			activity := new(replay.Future)
			x.ScheduleTask(activity, name, nil)
			activity.Await()
		}
		step.Await()
		return nil, nil
	}
	past := cat(begin(), start(), task(1, "A"), open(), begin(), replaytest.Done(1, ""), task(2, "B"), open())
	o := run(t, both, past)
	wantActions(t, o.Actions)
	wantSteps(t, o, "0 S")
	wantActions(t, run(t, both, past, replaytest.Done(2, "")).Actions)
	o = run(t, both, past, cat(pair(0, "S"), replaytest.Done(2, ""))...)
	wantActions(t, o.Actions, "3 Completed <nil>")
	wantSteps(t, o)
}

func TestStep_WithoutARecordDiffersOnlyFromAClosedEpisode(t *testing.T) {
	t.Parallel()
	step := func(x *replay.Execution, _ *string) (*string, error) {
		decide(x, "S").Await()
		return nil, nil
	}
	for _, c := range []struct {
		name    string
		past    []history.Event
		differs bool
	}{
		{"unrecorded", cat(begin(), start(), open(), begin(), replaytest.Raised("E", ""), open()), false},
		{"never decided", cat(begin(), start(), end(), begin(), replaytest.Raised("E", ""), end()), true},
	} {
		x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, step)
		x.Episode(c.past, cat(begin()))
		if differs := x.Divergence() != nil; differs != c.differs {
			t.Errorf("%s: the code differs from the history: %v, want %v", c.name, differs, c.differs)
		}
		x.Close()
	}
}

// A recorded step and a recorded activity are the same history.
func TestStep_AndActivityReplaceEachOther(t *testing.T) {
	t.Parallel()
	step := func(x *replay.Execution, _ *string) (*string, error) {
		decide(x, "Charge").Await()
		decide(x, "Ship").Await()
		return nil, nil
	}
	activity := code("task charge", "task Ship")
	recordedStep := cat(begin(), start(), open(), begin(), pair(0, "Charge"), open())
	scheduled := cat(begin(), start(), task(0, "Charge"), end())
	completed := cat(scheduled, begin(), replaytest.Done(0, ""))

	wantSteps(t, run(t, step, completed), "1 Ship")
	wantActions(t, run(t, activity, recordedStep).Actions, "1 task Ship <nil>")
	wantSteps(t, run(t, step, scheduled))
	wantSteps(t, run(t, step, scheduled, replaytest.Done(0, "")), "1 Ship")
	wantActions(t, run(t, activity, cat(begin(), start(), open())).Actions, "0 task charge <nil>")

	for name, past := range map[string][]history.Event{
		"a timer":       cat(begin(), start(), timer(0), end()),
		"a child":       cat(begin(), start(), child(0, "Charge"), end()),
		"another name":  cat(begin(), start(), task(0, "Refund"), end()),
		"another place": cat(begin(), start(), task(1, "Charge"), end()),
	} {
		x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, step)
		x.Episode(past, cat(begin()))
		if x.Divergence() == nil {
			t.Errorf("%s is accepted as a step", name)
		}
		x.Close()
	}
}

func TestStep_OfASuspendedInstanceIsRecordedAndNoneBegins(t *testing.T) {
	t.Parallel()
	suspended := &history.ExecutionSuspended{}
	past := cat(begin(), start(), open(), begin(), suspended, open())
	wantSteps(t, run(t, threeSteps, past))
	past = cat(past, begin(), pair(0, "A"), end())
	wantSteps(t, run(t, threeSteps, past))
	wantSteps(t, run(t, threeSteps, past, &history.ExecutionResumed{}), "1 B")

	x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, threeSteps)
	defer x.Close()
	wantSteps(t, x.Episode(nil, cat(begin(), start())), "0 A")
	wantSteps(t, x.Episode(nil, cat(begin(), suspended)))
	wantSteps(t, x.Episode(nil, cat(begin(), pair(0, "A"))))
	wantSteps(t, x.Episode(nil, cat(begin(), &history.ExecutionResumed{})), "1 B")
}

func TestStep_ThatRunsAtMostOnceIsRecordedBefore(t *testing.T) {
	t.Parallel()
	once := func(x *replay.Execution, _ *string) (*string, error) {
		f := new(replay.Future)
		x.RunStep(f, &replay.RunStep{Name: "S", Attempt: 1, AtMostOnce: true})
		f.Await()
		return nil, nil
	}
	x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, once)
	defer x.Close()
	o := x.Episode(nil, cat(begin(), start()))
	wantSteps(t, o, "0 S")
	if len(o.Actions) != 0 || !x.HasUnrecordedSteps() {
		t.Errorf("the step is recorded with its decision: %v", o.Actions)
	}
	o = x.Episode(nil, cat(begin(), task(0, "S"), history.NewStepStart(0, replaytest.Epoch)))
	wantSteps(t, o)
	if x.HasUnrecordedSteps() || !x.HasOpenSteps() {
		t.Errorf("the start is not recorded")
	}
	past := cat(begin(), start(), task(0, "S"), history.NewStepStart(0, replaytest.Epoch), end())
	wantSteps(t, run(t, once, past))
	rewound := cat(begin(), start(), &history.GenericEvent{Header: history.Header{EventID: 0}}, history.NewStepStart(0, replaytest.Epoch), end())
	wantSteps(t, run(t, once, rewound), "0 S")
	wantActions(t, run(t, once, past, replaytest.Failed(0, "unknown")).Actions, "1 Completed <nil>")
}

func TestExecution_KnowsTheStepsWithoutARecordedEnd(t *testing.T) {
	t.Parallel()
	once := func(x *replay.Execution, _ *string) (*string, error) {
		f := new(replay.Future)
		x.RunStep(f, &replay.RunStep{Name: "S", Attempt: 1, AtMostOnce: true})
		f.Await()
		return nil, nil
	}
	started := cat(begin(), start(), task(0, "S"), history.NewStepStart(0, replaytest.Epoch), end())
	for _, c := range []struct {
		name    string
		code    replay.Code
		past    []history.Event
		arrives []history.Event
		isOpen  bool
	}{
		{"decided", threeSteps, nil, cat(start()), true},
		{"recorded before the next one", threeSteps, cat(begin(), start(), open()), pair(0, "A"), true},
		{"recorded as the last one", threeSteps, cat(begin(), start(), open(), begin(), pair(0, "A"), open(), begin(), pair(1, "B"), open()), pair(2, "C"), false},
		{"started", once, started, nil, true},
		{"started and ended", once, started, cat(replaytest.Done(0, "")), false},
		{"started and ended while the instance is suspended", once, started, cat(&history.ExecutionSuspended{}, replaytest.Done(0, "")), false},
		{"an activity", code("task A"), cat(begin(), start(), task(0, "A"), end()), nil, false},
	} {
		x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, c.code)
		x.Episode(c.past, cat(begin(), c.arrives))
		if isOpen := x.HasOpenSteps(); isOpen != c.isOpen {
			t.Errorf("%s: the execution has open steps: %v, want %v", c.name, isOpen, c.isOpen)
		}
		x.Close()
	}
}

func TestStep_HasTheTimeAndTheFirstAttemptOfItsDecision(t *testing.T) {
	t.Parallel()
	twice := func(x *replay.Execution, _ *string) (*string, error) {
		first, second := decide(x, "S"), new(replay.Future)
		first.Await()
		x.RunStep(second, &replay.RunStep{Name: "S", Attempt: 2, First: first.ID()})
		second.Await()
		return nil, nil
	}
	x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, twice)
	defer x.Close()
	later := history.Header{EventID: -1, Timestamp: replaytest.Epoch.Add(1)}
	o := x.Episode(cat(begin(), start(), open(), &history.OrchestratorStarted{Header: later}, task(0, "S"), replaytest.Failed(0, "no"), open()), nil)
	if s := o.Steps[0]; s.ID != 1 || s.First != 0 || !s.DecidedAt.Equal(history.TruncateToTicks(later.Timestamp)) {
		t.Errorf("the second attempt is %+v", s)
	}
}

func TestOutcome_SaysWhetherTheCodeReadsTheTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]replay.Code{
		"the time": func(x *replay.Execution, _ *string) (*string, error) {
			x.ReadTime()
			decide(x, "S").Await()
			return nil, nil
		},
		"a UUID": func(x *replay.Execution, _ *string) (*string, error) {
			x.NewGUID()
			decide(x, "S").Await()
			return nil, nil
		},
	} {
		x := replay.New(history.OrchestrationInstance{InstanceID: "abc"}, c)
		if o := x.Episode(nil, cat(begin(), start())); !o.ReadsTime {
			t.Errorf("%s: ReadsTime is false", name)
		}
		if o := x.Episode(nil, cat(begin(), pair(0, "S"))); o.ReadsTime {
			t.Errorf("%s: ReadsTime is still true in the next episode", name)
		}
		x.Close()
	}
	if o := run(t, threeSteps, nil, start()); o.ReadsTime {
		t.Error("ReadsTime is true without a call")
	}
}
