package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// taken is what an export wrote, in short.
type taken []string

func (x *taken) Instance(_ context.Context, s *provider.InstanceState, past []history.Event) error {
	*x = append(*x, fmt.Sprintf("%s %s %s, %d events", s.Instance.InstanceID, s.Instance.ExecutionID, s.Status, len(past)))
	return nil
}

func (x *taken) Activity(_ context.Context, m provider.TaskMessage) error {
	*x = append(*x, fmt.Sprintf("activity %d of %s", m.Event.Head().EventID, m.Target.InstanceID))
	return nil
}

func (x *taken) Message(_ context.Context, m provider.TaskMessage) error {
	*x = append(*x, fmt.Sprintf("%s for %s", m.Event.Type(), m.Target.InstanceID))
	return nil
}

// abandoned returns a hub whose worker has gone, with an instance "a" that
// waits for an activity, which is in the queue.
func abandoned(t *testing.T) *TaskHub {
	t.Helper()
	cfg := testConfig(t)
	h := openHub(t, cfg)
	stop := runHub(t, h)
	mustStart(t, h, "a", "e1", `1`)
	commitActivity(t, mustNext(t, h), 0, `["x"]`)
	stop()
	h = openHub(t, cfg)
	h.cfg.ControlQueueVisibilityTimeout, h.cfg.WorkItemQueueVisibilityTimeout = 3*time.Second, 3*time.Second
	return h
}

func TestExport_WaitsForWhatAWorkerThatDiedHadInHand(t *testing.T) {
	t.Parallel()
	h := abandoned(t)
	h.cfg.WorkItemQueueVisibilityTimeout = time.Minute
	var hidden []store.Message
	eventually(t, "the activity in its queue", 20*time.Second, func() bool {
		var err error
		hidden, err = h.workItems.Receive(t.Context(), 1, 2*time.Second) // and then it dies
		return err == nil && len(hidden) == 1
	})
	var got taken
	var notices []string
	err := h.Export(t.Context(), &got, provider.ExportOptions{Notice: func(s string) { notices = append(notices, s) }})
	if err != nil {
		t.Fatal(err)
	}
	want := taken{"a e1 Running, 4 events", "activity 0 of a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
	if len(notices) != 1 {
		t.Errorf("notices: %q, want one", notices)
	}
	// It is visible again at once: nothing was taken away.
	if again, err := h.workItems.Receive(t.Context(), 1, time.Second); err != nil || len(again) != 1 {
		t.Errorf("after the export there are %d visible activities (%v), want 1", len(again), err)
	}
}

func TestExport_RefusesToLoseWhatTheHistoryTellsOf(t *testing.T) {
	t.Parallel()
	h := abandoned(t)
	eventually(t, "the activity in its queue", 20*time.Second, func() bool {
		lost, err := h.workItems.Receive(t.Context(), 1, time.Minute)
		return err == nil && len(lost) == 1
	})
	var got taken
	err := h.Export(t.Context(), &got, provider.ExportOptions{IgnoreHidden: true})
	hidden, ok := errors.AsType[*HiddenError](err)
	if !ok || hidden.Missing != 1 {
		t.Errorf("error %v, want a *HiddenError with one message missing", err)
	}
}

func TestExport_LeavesHiddenMessagesBehindOnlyIfItIsTold(t *testing.T) {
	t.Parallel()
	h := abandoned(t)
	event := provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: "a"}, Event: &history.EventRaised{Header: header(history.NoEventID), Name: "E"},
	}
	text, err := wire.EncodeEnvelope(&wire.Envelope{Message: &event, Sender: &history.OrchestrationInstance{}})
	if err == nil {
		_, err = h.controlQueues[0].Client.EnqueueMessage(t.Context(), string(text), &azqueue.EnqueueMessageOptions{VisibilityTimeout: new(int32(3600))})
	}
	if err != nil {
		t.Fatal(err)
	}
	var got taken
	hidden, ok := errors.AsType[*HiddenError](h.Export(t.Context(), &got, provider.ExportOptions{}))
	if !ok || hidden.Hidden != 1 || hidden.Missing != 0 {
		t.Errorf("error %+v, want a *HiddenError with one message hidden", hidden)
	}
	got = nil
	var notices []string
	err = h.Export(t.Context(), &got, provider.ExportOptions{IgnoreHidden: true, Notice: func(s string) { notices = append(notices, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if want := (taken{"a e1 Running, 4 events", "activity 0 of a"}); !slices.Equal(got, want) || len(notices) != 2 {
		t.Errorf("exported %q with notices %q, want %q and that something is left behind", got, notices, want)
	}
}

func TestExport_PutsRightWhatACrashLeft(t *testing.T) {
	t.Parallel()
	start := startMessage("a", "e2", `1`).Event.(*history.ExecutionStarted)
	end := &history.ExecutionCompleted{Header: header(1), Status: history.Completed, Result: new("done")}
	stored := func(executionID string, events ...history.Event) instances.History {
		s := instances.History{ExecutionID: executionID, Events: events, Known: instances.NewKnownEvents()}
		for _, ev := range events {
			s.Known.Add(ev)
		}
		return s
	}
	suspended := &history.ExecutionSuspended{Header: header(-1)}
	continued := stored("e2", start)
	continued.Current = instances.Generation{ExecutionID: "e2", First: "e1"}
	row := func(executionID string, status history.RuntimeStatus) *wire.InstanceRow {
		return &wire.InstanceRow{State: provider.InstanceState{
			Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: executionID}, Name: "Old", Status: status,
		}}
	}
	for _, tt := range []struct {
		name   string
		row    *wire.InstanceRow
		stored instances.History
		want   string
	}{
		{"the row of the first checkpoint is missing", nil, stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the row of the last checkpoint is missing", row("e2", history.Running), stored("e2", start, end), "e2 HelloSeq Completed, 2 events"},
		{"the row of a new generation is missing", row("e1", history.Running), stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the instance is about to start anew", row("e3", history.Pending), stored("e2", start, end), "e3 Old Pending, 0 events"},
		{"it was terminated before it started anew", row("e3", history.Terminated), stored("e2", start, end), "e3 Old Terminated, 0 events"},
		{"the row misses the suspension", row("e2", history.Running), stored("e2", start, suspended), "e2 HelloSeq Suspended, 2 events"},
		{"the row misses the start", row("e2", history.Pending), stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the row misses all since the start of an earlier generation", row("e1", history.Pending), continued, "e2 HelloSeq Running, 1 events"},
		{"nothing is missing", row("e2", history.Running), stored("e2", start), "e2 Old Running, 1 events"},
		{"it has not started", row("e2", history.Pending), stored(""), "e2 Old Pending, 0 events"},
	} {
		state, past := mended("a", tt.row, tt.stored)
		got := fmt.Sprintf("%s %s %s, %d events", state.Instance.ExecutionID, state.Name, state.Status, len(past))
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if state, _ := mended("a", nil, stored("")); state != nil {
		t.Errorf("of nothing it made %+v", state)
	}
}

// A worker died before it told the row of an instance that it began, which continued
// as new meanwhile. Its start message is still there, and must not take the place of
// what came of it.
func TestExport_LeavesTheStartOfAnEarlierGenerationBehind(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "a", "e1", `1`)
	start := startMessage("a", "e2", `2`)
	rows := mustRows(t, h, start.Target, 0, episode([]provider.TaskMessage{start}))
	if _, _, err := h.instances.Histories.Append(t.Context(), start.Target, rows, "", map[string]string{wire.FirstExecutionColumn: "e1"}); err != nil {
		t.Fatal(err)
	}
	var got taken
	if err := h.Export(t.Context(), &got, provider.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(taken{"a e2 Running, 3 events"}, got); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
}
