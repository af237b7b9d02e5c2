package azurestorage

import (
	"cmp"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// The row of an instance whose last generation ended just before the worker
// died may be that of an earlier generation. It is put right; the row of an
// execution that is yet to start is left alone.
func TestRepair_PutsTheRowOfAnEarlierGenerationRight(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	for id, tt := range map[string]struct {
		status history.RuntimeStatus
		first  string // what the history says of how it began
		want   history.RuntimeStatus
	}{
		"earlier":           {history.Running, "", history.Completed},
		"earlier, not told": {history.Pending, "e1", history.Completed},
		"next":              {history.Pending, "", history.Pending},
		"next of several":   {history.Pending, "e0", history.Pending},
	} {
		mustStart(t, h, id, "e1", `1`)
		if tt.status == history.Running {
			row := wire.Row{PartitionKey: wire.EscapeKey(id)}
			row.SetString("RuntimeStatus", "Running")
			if _, err := h.instances.RowTable.Merge(t.Context(), row, "*"); err != nil {
				t.Fatal(err)
			}
		}
		start := startMessage(id, "e2", `2`)
		events := episode([]provider.TaskMessage{start}, &history.ExecutionCompleted{Header: header(0), Status: history.Completed, Result: new(`"done"`)})
		rows, err := h.instances.Histories.Encode(t.Context(), id, "e2", 0, events)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.instances.Histories.Append(t.Context(), start.Target, rows, "", map[string]string{wire.FirstExecutionColumn: tt.first}); err != nil {
			t.Fatal(err)
		}
		if err := h.instances.Repair(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		state, err := h.Instance(t.Context(), id, provider.Fetch{Output: true})
		if err != nil {
			t.Fatal(err)
		}
		if state.Status != tt.want || tt.want == history.Completed && store.Value(state.Output) != `"done"` {
			t.Errorf("%s: the row is %v with output %s, want %v", id, state.Status, store.Value(state.Output), tt.want)
		}
	}
}

// The row of an instance whose worker died before it could say that the
// instance runs, or is suspended, is put right when what was taken comes again.
func TestRepair_PutsTheRowOfARunningInstanceRight(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	suspended := []history.Event{&history.ExecutionSuspended{Header: header(-1)}}
	for id, tt := range map[string]struct {
		fresh []history.Event
		row   string // what the row says, if not Pending
		want  history.RuntimeStatus

		before string // the execution that the row is of, if another one
	}{
		"running":   {want: history.Running},
		"suspended": {fresh: suspended, want: history.Suspended},
		"rewound":   {row: "Failed", want: history.Running}, // by somebody who died before the row said so
		"earlier":   {fresh: suspended, row: "Running", want: history.Suspended, before: "e0"},
		"ended":     {fresh: suspended, row: "Completed", want: history.Suspended, before: "e0"}, // whose ID a child has now
		"next":      {fresh: suspended, want: history.Pending, before: "e2"},                     // of a client that starts it anew
	} {
		mustStart(t, h, id, cmp.Or(tt.before, "e1"), `1`)
		if tt.row != "" {
			row := wire.Row{PartitionKey: wire.EscapeKey(id)}
			row.SetString("RuntimeStatus", tt.row)
			if _, err := h.instances.RowTable.Merge(t.Context(), row, "*"); err != nil {
				t.Fatal(err)
			}
		}
		start := startMessage(id, "e1", `1`)
		rows, err := h.instances.Histories.Encode(t.Context(), id, "e1", 0, episode([]provider.TaskMessage{start}, tt.fresh...))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.instances.Histories.Append(t.Context(), start.Target, rows, "", nil); err != nil {
			t.Fatal(err)
		}
		h.instances.Forget(id)
		stored, err := h.instances.Load(t.Context(), id, "e1")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.instances.Repair(t.Context(), id, stored); err != nil {
			t.Fatal(err)
		}
		if err := h.instances.Repair(t.Context(), id, nil); err != nil { // it is right already
			t.Fatal(err)
		}
		state, err := h.Instance(t.Context(), id, provider.Fetch{})
		if err != nil {
			t.Fatal(err)
		}
		if state.Status != tt.want {
			t.Errorf("%s: the row says %v, want %v", id, state.Status, tt.want)
		}
	}
}

// What is stored of an instance is not read at one instant: its row may be newer than
// its history. It is not put right then, and neither if somebody writes it meanwhile
// who knows less. What came again is kept, and comes once more.
func TestRepair_LeavesWhatHasChangedSinceItWasRead(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	for id, tt := range map[string]struct {
		change func(t *testing.T, stored *instances.Instance)
		want   history.RuntimeStatus
	}{
		"suspended": {func(t *testing.T, stored *instances.Instance) {
			mustAppend(t, h, stored.Row.State.Instance, len(stored.Events), episode(nil, &history.ExecutionSuspended{Header: header(-1)}), stored.ETag)
			if err := h.instances.Repair(t.Context(), "suspended", nil); err != nil {
				t.Fatal(err)
			}
			row, err := h.instances.Rows.Read(t.Context(), "suspended")
			if err != nil {
				t.Fatal(err)
			}
			stored.Row = row
		}, history.Suspended},
		"touched": {func(t *testing.T, _ *instances.Instance) {
			mustMerge(t, h, "touched", "", history.Pending)
		}, history.Running},
	} {
		mustStart(t, h, id, "e", `1`)
		start := startMessage(id, "e", `1`)
		mustAppend(t, h, start.Target, 0, episode([]provider.TaskMessage{start}), "")
		stored, err := h.instances.Load(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		tt.change(t, stored)
		if err := h.instances.Repair(t.Context(), id, stored); err == nil {
			t.Errorf("%s: the row was put right although something has changed", id)
		}
		if err := h.instances.Repair(t.Context(), id, nil); err != nil { // when it comes once more
			t.Fatal(err)
		}
		if got := runtimeStatus(t, h, id); got != tt.want {
			t.Errorf("%s: the row says %v, want %v", id, got, tt.want)
		}
	}
}

// A child that waits for an event, and whose row could not be inserted, can be found
// nevertheless when its start comes again.
func TestRepair_InsertsTheRowOfAChildThatGoesOn(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := startMessage("i", "e1", `1`)
	mustAppend(t, h, start.Target, 0, episode([]provider.TaskMessage{start}), "")
	if err := h.instances.Repair(t.Context(), "i", nil); err != nil {
		t.Fatal(err)
	}
	if got := runtimeStatus(t, h, "i"); got != history.Running {
		t.Errorf("the row says %v, want %v", got, history.Running)
	}
}

// A child has no row until its first checkpoint. If it is found to have none, somebody
// may have written it since, and even have started the ID anew.
func TestRepair_OfAMissingRowReplacesNone(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := startMessage("i", "e1", `1`)
	end := &history.ExecutionCompleted{Header: header(0), Status: history.Completed}
	mustAppend(t, h, start.Target, 0, episode([]provider.TaskMessage{start}, end), "")
	stored, err := h.instances.Load(t.Context(), "i", "")
	if err != nil {
		t.Fatal(err)
	}
	mustStart(t, h, "i", "e2", `2`)
	if err := h.instances.Repair(t.Context(), "i", stored); !store.IsConflict(err) {
		t.Errorf("the repair ended with %v, want a conflict", err)
	}
	row, err := h.instances.Rows.Read(t.Context(), "i")
	if err != nil || row.State.Instance.ExecutionID != "e2" || row.State.Status != history.Pending {
		t.Errorf("the row is %+v, %v, want that of what is to start", row, err)
	}
}
