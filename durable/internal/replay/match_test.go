package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

// head returns the header of the event that records action id.
func head(id int) history.Header { return history.Header{EventID: id, Timestamp: replaytest.Epoch} }

// Short constructors of events.
func begin() history.Event { return &history.OrchestratorStarted{Header: head(-1)} }
func end() history.Event   { return &history.OrchestratorCompleted{Header: head(-1)} }
func start() history.Event { return &history.ExecutionStarted{Header: head(-1), Name: "Main"} }
func task(id int, name string) history.Event {
	return &history.TaskScheduled{Header: head(id), Name: name}
}
func timer(id int) history.Event { return &history.TimerCreated{Header: head(id)} }
func child(id int, name string) history.Event {
	return &history.SubOrchestrationInstanceCreated{Header: head(id), Name: name, Version: "v1"}
}

func sent(id int, name string) history.Event {
	return &history.EventSent{Header: head(id), Name: name}
}

// code returns an orchestrator that takes the given steps: "task A", "timer", "child C", "send
// E", "wait E" or "fail x". It does not await a step with the prefix "!".
func code(steps ...string) replay.Code {
	return func(x *replay.Execution, _ *string) (*string, error) {
		for _, s := range steps {
			s, forget := strings.CutPrefix(s, "!")
			verb, name, _ := strings.Cut(s, " ")
			f := new(replay.Future)
			switch verb {
			case "task":
				x.ScheduleTask(f, name, nil)
			case "timer":
				x.CreateTimer(f, x.Now().Add(time.Hour))
			case "child":
				x.CreateSubOrchestration(f, name, "", nil)
			case "send":
				x.SendEvent("to", name, nil)
				continue
			case "wait":
				x.WaitEvent(f, name)
			case "fail":
				return nil, errors.New(name)
			}
			if !forget {
				f.Await()
			}
		}
		return new("end"), nil
	}
}

// run replays past and then runs an episode with fresh.
func run(t *testing.T, c replay.Code, past []history.Event, fresh ...history.Event) replay.Outcome {
	t.Helper()
	x := replay.New(history.OrchestrationInstance{InstanceID: "abc", ExecutionID: "e0"}, c)
	defer x.Close()
	return x.Episode(past, append([]history.Event{begin()}, fresh...))
}

func wantActions(t *testing.T, got []replay.Action, want ...string) {
	t.Helper()
	w := strings.Join(want, "\n")
	if w != "" {
		w += "\n"
	}
	if diff := cmp.Diff(replaytest.Describe(got), w); diff != "" {
		t.Errorf("actions (-got +want):\n%s", diff)
	}
}

func TestMatch_NamesTheFirstActionThatDiffers(t *testing.T) {
	t.Parallel()
	const changed = " Was a change made to the orchestrator code after this instance had already started running?"
	for _, c := range []struct {
		name string
		code replay.Code
		past []history.Event
		id   int
		want string
	}{
		{
			"missing: the code waits for something else",
			code("wait E"),
			[]history.Event{begin(), start(), task(0, "A"), end()},
			1,
			"A previous execution of this orchestration scheduled an activity task with sequence ID 0 and name 'A' (version ''), but the current replay execution hasn't (yet?) scheduled this task.",
		},
		{
			"missing: the code does less",
			code("!task A", "wait E"),
			[]history.Event{begin(), start(), task(0, "A"), timer(1), end()},
			2,
			"A previous execution of this orchestration scheduled a timer task with sequence ID 1, but the current replay execution hasn't (yet?) scheduled this task.",
		},
		{
			"missing: the code makes the decision later",
			code("wait E", "task A"),
			[]history.Event{begin(), start(), task(0, "A"), end(), begin(), replaytest.Raised("E", ""), end()},
			1,
			"A previous execution of this orchestration scheduled an activity task with sequence ID 0 and name 'A' (version ''), but the current replay execution hasn't (yet?) scheduled this task.",
		},
		{
			"missing: a child that the code does not start",
			code("task A"),
			[]history.Event{begin(), start(), task(0, "A"), child(1, "C"), end()},
			2,
			"A previous execution of this orchestration scheduled a sub-orchestration task with sequence ID 1 and name 'C' (version 'v1'), but the current replay execution hasn't (yet?) scheduled this task.",
		},
		{
			"missing: the same record twice",
			code("task A"),
			[]history.Event{begin(), start(), task(0, "A"), task(0, "A"), end()},
			1,
			"A previous execution of this orchestration scheduled an activity task with sequence ID 0 and name 'A' (version ''), but the current replay execution hasn't (yet?) scheduled this task.",
		},
		{
			"missing: before the start",
			code("task A"),
			[]history.Event{begin(), sent(3, "E"), start(), task(0, "A"), end()},
			4,
			"A previous execution of this orchestration scheduled a send event task with sequence ID 3 and name 'E', but the current replay execution hasn't (yet?) scheduled this task.",
		},
		{
			"other kind: a timer for an activity",
			code("timer"),
			[]history.Event{begin(), start(), task(0, "A"), end()},
			1,
			"A previous execution of this orchestration scheduled an activity task with sequence ID 0 and name 'A' (version ''), but the current orchestration replay instead produced a timer task with this sequence number.",
		},
		{
			"other kind: an activity for a timer",
			code("!timer", "task A"),
			[]history.Event{begin(), start(), timer(0), timer(1), end()},
			2,
			"A previous execution of this orchestration scheduled a timer task with sequence ID 1, but the current orchestration replay instead produced an activity task named 'A' with this sequence number.",
		},
		{
			"other kind: an activity for a child",
			code("task A"),
			[]history.Event{begin(), start(), child(0, "A"), end()},
			1,
			"A previous execution of this orchestration scheduled a sub-orchestration task with sequence ID 0 and name 'A' (version 'v1'), but the current orchestration replay instead produced an activity task named 'A' with this sequence number.",
		},
		{
			"other kind: the end for an event",
			code(),
			[]history.Event{begin(), start(), sent(0, "E"), end()},
			1,
			"A previous execution of this orchestration scheduled a send event task with sequence ID 0 and name 'E', but the current orchestration replay instead produced the orchestration's completion with this sequence number.",
		},
		{
			"other name",
			code("task B"),
			[]history.Event{begin(), start(), task(0, "A"), end()},
			1,
			"A previous execution of this orchestration scheduled an activity task with sequence ID 0 and name 'A' (version ''), but the current orchestration replay instead scheduled an activity task named 'B' with this sequence number.",
		},
		{
			"other name: of an event",
			code("send F"),
			[]history.Event{begin(), start(), sent(0, "E"), end()},
			2,
			"A previous execution of this orchestration scheduled a send event task with sequence ID 0 and name 'E', but the current orchestration replay instead scheduled a send event task named 'F' with this sequence number.",
		},
		{
			"other name: an added activity",
			code("!task A", "!task New", "task B"),
			[]history.Event{begin(), start(), task(0, "A"), task(1, "B"), end()},
			3,
			"A previous execution of this orchestration scheduled an activity task with sequence ID 1 and name 'B' (version ''), but the current orchestration replay instead scheduled an activity task named 'New' with this sequence number.",
		},
		{
			"extra: an action in a complete episode",
			code("!task A", "task B"),
			[]history.Event{begin(), start(), task(0, "A"), end()},
			2,
			"The current orchestration replay produced an activity task named 'B' with sequence ID 1, which no previous execution of this orchestration did.",
		},
		{
			"extra: found when the next episode starts",
			code("!task A", "!send E", "timer"),
			[]history.Event{begin(), start(), task(0, "A"), end(), begin(), replaytest.Done(0, ""), task(1, "C"), end()},
			3,
			"The current orchestration replay produced a send event task named 'E' with sequence ID 1, which no previous execution of this orchestration did.",
		},
		{
			"extra: the code ends too early",
			code("task A"),
			[]history.Event{begin(), start(), task(0, "A"), end(), begin(), replaytest.Done(0, ""), end()},
			2,
			"The current orchestration replay produced the orchestration's completion with sequence ID 1, which no previous execution of this orchestration did.",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := run(t, c.code, c.past, replaytest.Raised("X", "")).Actions
			text := "Non-Deterministic workflow detected: " + c.want + changed
			want := []replay.Action{&replay.Complete{
				ID: c.id, Status: history.Failed, Result: &text,
				Failure: &history.FailureDetails{ErrorType: "*durable.NonDeterminismError", ErrorMessage: text},
			}}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("actions (-got +want):\n%s", diff)
			}
		})
	}
}

func TestMatch_AcceptsEqualDecisions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		code  replay.Code
		past  []history.Event
		fresh []history.Event
		want  []string
	}{
		{
			"all kinds", code("!task A", "!timer", "!child C", "send E", "task B"),
			[]history.Event{begin(), start(), task(0, "A"), timer(1), child(2, "C"), sent(3, "E"), task(4, "B"), end()},
			[]history.Event{replaytest.Done(4, "")},
			[]string{"5 Completed end"},
		},
		{
			"names in another case, another version, another time", code("!task ACTIVITY", "!child straße", "!timer", "wait E"),
			[]history.Event{
				begin(), start(), &history.TaskScheduled{Header: head(0), Name: "activity", Version: "7"}, child(1, "STRAßE"),
				&history.TimerCreated{Header: head(2), FireAt: replaytest.Epoch.Add(-time.Hour)}, end(),
			},
			nil, nil,
		},
		{
			"records in another order", code("!task A", "!task B", "!task C", "wait E"),
			[]history.Event{begin(), start(), task(2, "C"), task(0, "A"), task(1, "B"), end()},
			nil, nil,
		},
		{
			"a child completes", code("child C"),
			[]history.Event{begin(), start(), child(0, "C"), end()},
			[]history.Event{&history.SubOrchestrationInstanceCompleted{TaskScheduledID: 0, Result: new("1")}},
			[]string{"1 Completed end"},
		},
		{
			"a child fails", code("child C"),
			[]history.Event{begin(), start(), child(0, "C"), end()},
			[]history.Event{&history.SubOrchestrationInstanceFailed{TaskScheduledID: 0, Reason: new("x")}},
			[]string{"1 Completed end"},
		},
		{
			"events without effect", code("task A"),
			[]history.Event{
				begin(), &history.HistoryState{Header: head(-1)}, start(), start(), task(0, "A"), end(),
				begin(), &history.GenericEvent{Header: head(-1)}, replaytest.Done(9, ""), replaytest.Fired(0), &history.ExecutionRewound{Header: head(-1)}, end(),
			},
			[]history.Event{replaytest.Done(0, "")},
			[]string{"1 Completed end"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantActions(t, run(t, c.code, c.past, c.fresh...).Actions, c.want...)
		})
	}
}

func TestMatch_AnEndedExecutionDecidesNothing(t *testing.T) {
	t.Parallel()
	c := code("task A", "task B")
	for _, past := range [][]history.Event{
		{begin(), start(), task(0, "A"), end(), begin(), &history.ExecutionTerminated{}, &history.ExecutionCompleted{Header: head(1), Status: history.Terminated}, end()},
		{begin(), start(), task(0, "A"), &history.ExecutionCompleted{Header: head(1), Status: history.Failed}, end()},
		{begin(), start(), task(0, "A"), &history.ContinueAsNew{Header: head(1)}, end()},
	} {
		wantActions(t, run(t, c, past, replaytest.Done(0, ""), task(7, "X"), start(), &history.ExecutionTerminated{}).Actions)
	}
}

func TestMatch_TheEndOfADivergedExecutionHasAnUnusedNumber(t *testing.T) {
	t.Parallel()
	for _, past := range [][]history.Event{
		{begin(), start(), task(41, "A"), end()},
		{begin(), start(), task(3, "A"), task(41, "B"), task(4, "C"), end()},
	} {
		got := run(t, code("wait E"), past).Actions
		if len(got) != 1 || got[0].ActionID() != 42 {
			t.Errorf("got %s", replaytest.Describe(got))
		}
	}
}

func TestMatch_UnwindsAnOrchestratorThatDiverges(t *testing.T) {
	t.Parallel()
	unwound := false
	run(t, func(x *replay.Execution, _ *string) (*string, error) {
		defer func() { unwound = true }()
		f := new(replay.Future)
		x.ScheduleTask(f, "B", nil)
		f.Await()
		t.Error("the orchestrator continued after it diverged")
		return nil, nil
	}, []history.Event{begin(), start(), task(0, "A"), end(), begin(), replaytest.Done(0, ""), end()})
	if !unwound {
		t.Error("the orchestrator was not unwound")
	}
}

// fanOut schedules n activities and takes their results in the order in which they complete.
func fanOut(n int) replay.Code {
	return func(x *replay.Execution, _ *string) (*string, error) {
		fs := make([]*replay.Future, n)
		for i := range fs {
			fs[i] = new(replay.Future)
			x.ScheduleTask(fs[i], "A", nil)
		}
		c := x.Collect(fs)
		defer c.Stop()
		for {
			if _, ok := c.Next(); !ok {
				return nil, nil
			}
		}
	}
}

// fanOutHistory returns the history of fanOut before its last activity completes. The
// activities complete in reverse order.
func fanOutHistory(n int) []history.Event {
	events := []history.Event{begin(), start()}
	for i := range n {
		events = append(events, task(i, "A"))
	}
	events = append(events, end())
	for i := n - 2; i >= 0; i-- {
		events = append(events, begin(), replaytest.Done(i, ""), end())
	}
	return events
}

func TestNonDeterminismError_NamesTheRecordedAndTheNewAction(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(run(t, code("task B"), []history.Event{begin(), start(), task(0, "A"), end()}).Actions[0].(*replay.Complete).Failure.ErrorMessage)
	for _, part := range []string{"Non-Deterministic workflow detected:", "sequence ID 0", "name 'A'", "named 'B'"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q does not contain %q", got, part)
		}
	}
}
