package replay_test

import (
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// A checkpoint of more than 99 events is written in several batches. A crash between them cuts
// the history off in the middle of an episode (wire format §8.4). Replay makes the missing
// decisions again.
func TestMatch_ARepeatedEpisodeDecidesWhatACrashKeptFromTheHistory(t *testing.T) {
	t.Parallel()
	c := code("!task A", "!task B", "!task C", "wait E", "task D")
	wantActions(t, run(t, c, []history.Event{begin(), start(), task(0, "A")}, replaytest.Done(0, "")).Actions,
		"1 task B <nil>", "2 task C <nil>")
	// The next history has these decisions in an episode of their own.
	wantActions(t, run(t, c, []history.Event{
		begin(), start(), task(0, "A"),
		begin(), replaytest.Done(0, ""), task(1, "B"), task(2, "C"), end(),
	}, replaytest.Raised("E", "")).Actions, "3 task D <nil>")
	// A second crash.
	wantActions(t, run(t, c, []history.Event{
		begin(), start(), task(0, "A"),
		begin(), replaytest.Done(0, ""), task(1, "B"),
	}).Actions, "2 task C <nil>")
	// An extra action is still found at the end of a complete episode.
	got := run(t, c, []history.Event{
		begin(), start(), task(0, "A"),
		begin(), replaytest.Done(0, ""), task(1, "B"), end(),
	}).Actions
	if len(got) != 1 || got[0].(*replay.Complete).Status != history.Failed {
		t.Errorf("got %s, want a failure", replaytest.Describe(got))
	}
}

// If an execution continues as new and the new generation does work at once, DurableTask
// records two OrchestratorCompleted for one OrchestratorStarted. The first comes before the
// actions (wire format §8.8).
func TestMatch_AcceptsTwoEndsOfTheEpisodeAfterContinueAsNew(t *testing.T) {
	t.Parallel()
	c := code("wait E", "task A", "task B")
	played := &history.OrchestratorCompleted{Header: history.Header{EventID: -1, IsPlayed: true, Timestamp: replaytest.Epoch}}
	for _, first := range []history.Event{played, end()} {
		past := []history.Event{begin(), start(), replaytest.Raised("E", ""), first, task(0, "A"), end()}
		wantActions(t, run(t, c, past, replaytest.Done(0, "")).Actions, "1 task B <nil>")
	}
	// The process crashed after the first: the actions are not recorded yet.
	wantActions(t, run(t, c, []history.Event{begin(), start(), replaytest.Raised("E", ""), played}).Actions, "0 task A <nil>")
}

// DurableTask splits an episode that becomes too large. It adds a timer with a reserved number
// and continues in the next episode (DurableTask.Core/TaskOrchestrationDispatcher.cs,
// MaxCheckpointBatchSize).
func TestMatch_AcceptsASplitEpisode(t *testing.T) {
	t.Parallel()
	c := code("!task A", "!task B", "wait E")
	wantActions(t, run(t, c, []history.Event{begin(), start(), task(0, "A"), timer(-100), end()}, replaytest.Fired(-100)).Actions, "1 task B <nil>")
	wantActions(t, run(t, c, []history.Event{
		begin(), start(), task(0, "A"), timer(-100), end(),
		begin(), replaytest.Fired(-100), task(1, "B"), end(),
	}).Actions)
}

// A rewind replaces the records of a failed activity with a GenericEvent, so that it is
// scheduled again (wire format §10.6).
func TestMatch_SchedulesARewoundTaskAgain(t *testing.T) {
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

// While an instance is suspended, DurableTask does not record its decisions
// (TaskOrchestrationContext.cs, HandleExecutionSuspendedEvent).
func TestMatch_AcceptsActionsRecordedAfterAResumption(t *testing.T) {
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
	// A history that contains them nevertheless.
	past = []history.Event{
		begin(), start(), task(0, "A"), end(),
		begin(), replaytest.Done(0, ""), &history.ExecutionSuspended{}, task(1, "B"), end(),
	}
	wantActions(t, run(t, c, past, replaytest.Done(1, ""), &history.ExecutionResumed{}).Actions, "2 Completed end")
}

// A generation that was committed before it ran can be woken and suspended in the same episode.
// Its decisions then wait until it is resumed.
func TestMatch_AcceptsAGenerationThatWasSuspendedWhenItStarted(t *testing.T) {
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
