package replay_test

import (
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// A checkpoint of more than 99 events is written in several batches. After a
// crash between them the history ends in the middle of an episode (wire format
// §8.4); what is missing is decided anew.
func TestMatch_DecidesAnewWhatACrashKeptFromBeingRecorded(t *testing.T) {
	t.Parallel()
	c := code("!task A", "!task B", "!task C", "wait E", "task D")
	wantActions(t, run(t, c, []history.Event{begin(), start(), task(0, "A")}, replaytest.Done(0, "")).Actions,
		"1 task B <nil>", "2 task C <nil>")
	// The next history has them in an episode of their own.
	wantActions(t, run(t, c, []history.Event{
		begin(), start(), task(0, "A"),
		begin(), replaytest.Done(0, ""), task(1, "B"), task(2, "C"), end(),
	}, replaytest.Raised("E", "")).Actions, "3 task D <nil>")
	// A second crash.
	wantActions(t, run(t, c, []history.Event{
		begin(), start(), task(0, "A"),
		begin(), replaytest.Done(0, ""), task(1, "B"),
	}).Actions, "2 task C <nil>")
	// What is extra is still found, at the end of an episode that is whole.
	got := run(t, c, []history.Event{
		begin(), start(), task(0, "A"),
		begin(), replaytest.Done(0, ""), task(1, "B"), end(),
	}).Actions
	if len(got) != 1 || got[0].(*replay.Complete).Status != history.Failed {
		t.Errorf("got %s, want a failure", replaytest.Describe(got))
	}
}

// After a continue-as-new that then does work, DurableTask records two
// OrchestratorCompleted for one OrchestratorStarted, the first of them before
// the actions (wire format §8.8).
func TestMatch_UnderstandsTheEpisodeAfterContinueAsNew(t *testing.T) {
	t.Parallel()
	c := code("wait E", "task A", "task B")
	played := &history.OrchestratorCompleted{Header: history.Header{EventID: -1, IsPlayed: true, Timestamp: replaytest.Epoch}}
	for _, first := range []history.Event{played, end()} {
		past := []history.Event{begin(), start(), replaytest.Raised("E", ""), first, task(0, "A"), end()}
		wantActions(t, run(t, c, past, replaytest.Done(0, "")).Actions, "1 task B <nil>")
	}
	// A crash after the first of them: the actions are still to be decided.
	wantActions(t, run(t, c, []history.Event{begin(), start(), replaytest.Raised("E", ""), played}).Actions, "0 task A <nil>")
}

// DurableTask cuts an episode off when it grows too large, puts in a timer with
// a number of its own, and goes on in the next
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, MaxCheckpointBatchSize).
func TestMatch_UnderstandsAnEpisodeThatWasSplit(t *testing.T) {
	t.Parallel()
	c := code("!task A", "!task B", "wait E")
	wantActions(t, run(t, c, []history.Event{begin(), start(), task(0, "A"), timer(-100), end()}, replaytest.Fired(-100)).Actions, "1 task B <nil>")
	wantActions(t, run(t, c, []history.Event{
		begin(), start(), task(0, "A"), timer(-100), end(),
		begin(), replaytest.Fired(-100), task(1, "B"), end(),
	}).Actions)
}

// Rewind puts a GenericEvent in the place of a failed activity's records, for
// it to be scheduled anew (wire format §10.6).
func TestMatch_SchedulesARewoundTaskAnew(t *testing.T) {
	t.Parallel()
	c := code("task A", "task B")
	hole := func(id int) history.Event { return &history.GenericEvent{Header: head(id)} }
	past := []history.Event{
		begin(), start(), task(0, "A"), end(),
		begin(), replaytest.Done(0, ""), hole(1), end(),
		begin(), hole(-1), hole(2), end(),
	}
	wake := &history.GenericEvent{Header: head(-1)}
	wantActions(t, run(t, c, past, wake).Actions, "1 task B <nil>")
	past = append(past, begin(), wake, task(1, "B"), end())
	wantActions(t, run(t, c, past, replaytest.Done(1, "")).Actions, "2 Completed end")
}

// While an instance is suspended DurableTask records nothing of what was
// decided (TaskOrchestrationContext.cs, HandleExecutionSuspendedEvent).
func TestMatch_UnderstandsActionsThatWaitedForAResumption(t *testing.T) {
	t.Parallel()
	c := code("task A", "task B")
	past := []history.Event{
		begin(), start(), task(0, "A"), end(),
		begin(), replaytest.Done(0, ""), &history.ExecutionSuspended{}, end(),
		begin(), replaytest.Raised("X", ""), end(),
	}
	wantActions(t, run(t, c, past).Actions)
	wantActions(t, run(t, c, past, &history.ExecutionResumed{}).Actions, "1 task B <nil>")
	past = append(past, begin(), &history.ExecutionResumed{}, task(1, "B"), end())
	wantActions(t, run(t, c, past, replaytest.Done(1, "")).Actions, "2 Completed end")
	// A history in which they were recorded all the same.
	past = []history.Event{
		begin(), start(), task(0, "A"), end(),
		begin(), replaytest.Done(0, ""), &history.ExecutionSuspended{}, task(1, "B"), end(),
	}
	wantActions(t, run(t, c, past, replaytest.Done(1, ""), &history.ExecutionResumed{}).Actions, "2 Completed end")
}

// A generation that was committed before it ran may be woken and suspended at once: what
// it decided then waits until it is resumed.
func TestMatch_UnderstandsAGenerationThatWasSuspendedAsItWasWoken(t *testing.T) {
	t.Parallel()
	c := code("task A", "task B")
	played := &history.OrchestratorCompleted{Header: history.Header{EventID: -1, IsPlayed: true, Timestamp: replaytest.Epoch}}
	wake := &history.GenericEvent{Header: head(-1), Data: new("continue-as-new")}
	for _, fresh := range [][]history.Event{{wake, &history.ExecutionSuspended{}}, {&history.ExecutionSuspended{}, wake}} {
		past := slices.Concat([]history.Event{begin(), start(), played, begin()}, fresh, []history.Event{end()})
		wantActions(t, run(t, c, past).Actions)
		wantActions(t, run(t, c, past, &history.ExecutionResumed{}).Actions, "0 task A <nil>")
		past = append(past, begin(), &history.ExecutionResumed{}, task(0, "A"), end())
		wantActions(t, run(t, c, past, replaytest.Done(0, "")).Actions, "1 task B <nil>")
	}
}
