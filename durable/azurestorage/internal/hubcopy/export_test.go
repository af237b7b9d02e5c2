package hubcopy

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestRepaired_CompletesWhatACrashInterrupted(t *testing.T) {
	t.Parallel()
	head := history.NewHeader(time.Now())
	start := &history.ExecutionStarted{Header: head, Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e2"}, Name: "HelloSeq"}
	end := &history.ExecutionCompleted{Header: head, Status: history.Completed, Result: new("done")}
	stored := func(executionID string, events ...history.Event) instances.History {
		s := instances.History{ExecutionID: executionID, Events: events, Known: instances.NewKnownEvents()}
		for _, ev := range events {
			s.Known.Add(ev)
		}
		return s
	}
	suspended := &history.ExecutionSuspended{Header: head}
	continued := stored("e2", start)
	continued.Current = instances.Generation{ExecutionID: "e2", First: "e1"}
	row := func(executionID string, status history.RuntimeStatus) *wire.InstanceRow {
		return &wire.InstanceRow{State: provider.InstanceState{
			Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: executionID}, Name: "Old", Status: status,
		}}
	}
	completed := row("e1", history.Completed)
	completed.State.Output, completed.State.CompletedAt = new("old"), head.Timestamp.Add(-time.Second)
	terminated := row("e3", history.Terminated)
	terminated.State.LastUpdatedAt = head.Timestamp.Add(time.Second)
	for _, tt := range []struct {
		name   string
		row    *wire.InstanceRow
		stored instances.History
		want   string
	}{
		{"the row of the first checkpoint is missing", nil, stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the row of the last checkpoint is missing", row("e2", history.Running), stored("e2", start, end), "e2 HelloSeq Completed, 2 events"},
		{"the row of a new generation is missing", row("e1", history.Running), stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the instance is about to start again", row("e3", history.Pending), stored("e2", start, end), "e3 Old Pending, 0 events"},
		{"it was terminated before it started again", terminated, stored("e2", start, end), "e3 Old Terminated, 0 events"},
		{"it was terminated before it replaced a running execution", terminated, stored("e2", start), "e3 Old Terminated, 0 events"},
		{"the row of a child that reuses an ID is missing", row("e1", history.Completed), stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the row of a child that reuses an ID and has ended is missing", row("e1", history.Completed), stored("e2", start, end), "e2 HelloSeq Completed, 2 events"},
		{"the row lacks the suspension", row("e2", history.Running), stored("e2", start, suspended), "e2 HelloSeq Suspended, 2 events"},
		{"the row lacks the start", row("e2", history.Pending), stored("e2", start), "e2 HelloSeq Running, 1 events"},
		{"the row lacks everything after the start of an earlier generation", row("e1", history.Pending), continued, "e2 HelloSeq Running, 1 events"},
		{"nothing is missing", row("e2", history.Running), stored("e2", start), "e2 Old Running, 1 events"},
		{"it has not started", row("e2", history.Pending), stored(""), "e2 Old Pending, 0 events"},
	} {
		state, past := repaired("a", tt.row, tt.stored)
		got := fmt.Sprintf("%s %s %s, %d events", state.Instance.ExecutionID, state.Name, state.Status, len(past))
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if state, _ := repaired("a", completed, stored("e2", start)); state.Output != nil || !state.CompletedAt.IsZero() {
		t.Errorf("a child that reuses an ID: %+v, want no output and no time of an end", state)
	}
	if state, _ := repaired("a", nil, stored("")); state != nil {
		t.Errorf("repaired without a row and events = %+v, want nil", state)
	}
}
