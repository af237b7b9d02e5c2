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

// If the worker dies after the last generation of an instance ends, the row may still describe an
// earlier generation. Repair updates it. It does not change the row of an execution that has not
// started.
func TestRepair_UpdatesTheRowOfAnEarlierGeneration(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	for id, tt := range map[string]struct {
		status history.RuntimeStatus
		first  string // the first execution according to the history
		want   history.RuntimeStatus
	}{
		"earlier":          {history.Running, "", history.Completed},
		"earlier, pending": {history.Pending, "e1", history.Completed},
		"next":             {history.Pending, "", history.Pending},
		"next of several":  {history.Pending, "e0", history.Pending},
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

// If the worker died before it wrote to the row that the instance is running or suspended, a
// redelivered message repairs the row.
func TestRepair_UpdatesTheRowOfARunningInstance(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	suspended := []history.Event{&history.ExecutionSuspended{Header: header(-1)}}
	for id, tt := range map[string]struct {
		fresh []history.Event
		row   string // the status in the row, if not Pending
		want  history.RuntimeStatus

		before string // the execution in the row, if it is another one
	}{
		"running":   {want: history.Running},
		"suspended": {fresh: suspended, want: history.Suspended},
		"rewound":   {row: "Failed", want: history.Running}, // by a process that died before it wrote the row
		"earlier":   {fresh: suspended, row: "Running", want: history.Suspended, before: "e0"},
		"ended":     {fresh: suspended, row: "Completed", want: history.Suspended, before: "e0"}, // a child has the ID now
		"next":      {fresh: suspended, want: history.Pending, before: "e2"},                     // a client starts the ID again
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
		h.instances.Evict(id)
		stored, err := h.instances.Load(t.Context(), id, "e1")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.instances.Repair(t.Context(), id, stored); err != nil {
			t.Fatal(err)
		}
		if err := h.instances.Repair(t.Context(), id, nil); err != nil { // it is repaired already
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

// History and row are not read at the same time, so the row may be newer than the history. Repair
// fails then, and also if another process writes outdated data to the row. The message is kept and
// redelivered.
func TestRepair_FailsIfTheDataHasChanged(t *testing.T) {
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
			t.Errorf("%s: the repair succeeded although the data has changed", id)
		}
		if err := h.instances.Repair(t.Context(), id, nil); err != nil { // when the message is redelivered
			t.Fatal(err)
		}
		if got := runtimeStatus(t, h, id); got != tt.want {
			t.Errorf("%s: the row says %v, want %v", id, got, tt.want)
		}
	}
}

// A running child whose row could not be inserted gets its row when its start is redelivered.
func TestRepair_InsertsTheRowOfARunningChild(t *testing.T) {
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

// A child has no row until its first checkpoint. If it has none, another process may have inserted
// one since, even for a new start of the ID.
func TestRepair_OfAMissingRowReplacesNoOther(t *testing.T) {
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
		t.Errorf("the repair returned %v, want a conflict", err)
	}
	row, err := h.instances.Rows.Read(t.Context(), "i")
	if err != nil || row.State.Instance.ExecutionID != "e2" || row.State.Status != history.Pending {
		t.Errorf("the row is %+v, %v, want the pending one of e2", row, err)
	}
}
