package azurestorage

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// episode encloses messages and decided events in OrchestratorStarted and OrchestratorCompleted.
func episode(messages []provider.TaskMessage, decided ...history.Event) []history.Event {
	events := []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(time.Now())}}
	for _, m := range messages {
		m.Event.Head().IsPlayed = true
		events = append(events, m.Event)
	}
	events = append(events, decided...)
	return append(events, &history.OrchestratorCompleted{Header: history.NewHeader(time.Now())})
}

func header(id int) history.Header {
	return history.Header{EventID: id, Timestamp: history.TruncateToTicks(time.Now())}
}

// schedule returns the event and the message that schedule an activity. As in the engine, only the
// message has the input.
func schedule(item *provider.OrchestrationWorkItem, id int, input string) (history.Event, provider.TaskMessage) {
	ev := &history.TaskScheduled{Header: header(id), Name: "Hello"}
	sent := *ev
	sent.Input = &input
	return ev, provider.TaskMessage{Event: &sent, Target: item.Instance}
}

// commitActivity commits an episode that schedules one activity.
func commitActivity(t testing.TB, item *provider.OrchestrationWorkItem, id int, input string) {
	t.Helper()
	ev, msg := schedule(item, id, input)
	cp := &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg}}
	mustCommit(t, item, cp)
}

// commitEnd commits an episode in which the orchestrator returns output.
func commitEnd(t testing.TB, item *provider.OrchestrationWorkItem, id int, output string) {
	t.Helper()
	mustCommit(t, item, &provider.Checkpoint{
		Instance: item.Instance,
		NewEvents: episode(item.Messages, &history.ExecutionCompleted{
			Header: header(id), Status: history.Completed, Result: &output,
		}),
	})
}

func mustCommit(t testing.TB, item *provider.OrchestrationWorkItem, cp *provider.Checkpoint) {
	t.Helper()
	if err := item.Session.Commit(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	if err := item.Session.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func completeActivity(t testing.TB, h *TaskHub, result string) {
	t.Helper()
	item := mustActivity(t, h)
	err := item.Lock.Complete(t.Context(), &history.TaskCompleted{
		Header: header(history.NoEventID), TaskScheduledID: item.Task.EventID, Result: &result,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runHello runs the hello sequence in place of the engine and the activities.
func runHello(t testing.TB, h *TaskHub, cities ...string) {
	t.Helper()
	var greetings []string
	for i, city := range cities {
		commitActivity(t, mustNext(t, h), i, `["`+city+`"]`)
		completeActivity(t, h, `"Hello `+city+`!"`)
		greetings = append(greetings, "Hello "+city+"!")
	}
	output, err := json.Marshal(greetings)
	if err != nil {
		t.Fatal(err)
	}
	commitEnd(t, mustNext(t, h), len(cities), string(output))
}

// storedRows returns all rows of an instance in a table.
func storedRows(t testing.TB, table *store.Table, instanceID string) [][]byte {
	t.Helper()
	var rows [][]byte
	err := table.All(t.Context(), store.Query{Filter: "PartitionKey eq '" + store.EscapeOData(wire.EscapeKey(instanceID)) + "'"}, func(raw []byte) error {
		rows = append(rows, raw)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The history and instance rows of a hello sequence equal the recorded rows of .NET in every
// column, except for IDs and times.
func TestCheckpoint_WritesTheRecordedRowsOfAHelloSequence(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	start := startMessage("seq1", "8747b3a46089446a9771b91d72f57a5a", "null")
	event := start.Event.(*history.ExecutionStarted)
	event.Input = nil
	if err := h.StartInstance(t.Context(), start, nil); err != nil {
		t.Fatal(err)
	}
	runHello(t, h, "Tokyo", "Seattle", "London")

	got, want := map[string]map[string]recordings.EDMValue{}, map[string]map[string]recordings.EDMValue{}
	for _, raw := range storedRows(t, h.instances.HistoryTable, "seq1") {
		columns := withoutIDs(t, raw)
		got["History "+columns["RowKey"].Text()] = columns
	}
	for _, raw := range storedRows(t, h.instances.RowTable, "seq1") {
		got["Instances"] = withoutIDs(t, raw)
	}
	want["Instances"] = map[string]recordings.EDMValue{}
	for _, e := range recordings.Rows(t) {
		if e.Request.Folder != "hello" || !strings.HasPrefix(e.Request.Scenario, "noext") || e.Verb == "GET" || e.Table == "Partitions" {
			continue
		}
		columns := withoutIDs(t, e.Raw)
		key := "Instances"
		if e.Table == "History" {
			key = "History " + columns["RowKey"].Text()
			want[key] = map[string]recordings.EDMValue{}
		}
		for name, v := range columns { // rows of an instance are merged
			want[key][name] = v
		}
	}
	if len(want) != 18 {
		t.Fatalf("%d rows are recorded, want 16 events, the sentinel and the instance", len(want))
	}
	delete(want["Instances"], "TaskHubName")
	delete(got["Instances"], "TaskHubName")
	delete(got["Instances"], wire.FirstCreatedColumn) // .NET does not write these columns
	delete(got["Instances"], wire.DirectStartColumn)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-.NET +ours):\n%s", diff)
	}
}

// withoutIDs returns a row's columns. It replaces the values of IDs and times by a constant.
func withoutIDs(t testing.TB, raw []byte) map[string]recordings.EDMValue {
	columns := recordings.Columns(t, raw)
	for name, v := range columns {
		switch {
		case v.Type == "Edm.DateTime", name == "ExecutionId", name == "OrchestrationInstance", name == "PartitionKey":
			columns[name] = recordings.EDMValue{Type: v.Type, Value: "some"}
		}
	}
	return columns
}

func TestTaskHub_ReportsStateAndHistoryToClients(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	mustStart(t, h, "hello-1", "exec1", `"in"`)

	state, err := h.Instance(t.Context(), "hello-1", provider.Fetch{Input: true})
	if err != nil {
		t.Fatal(err)
	}
	if state.Status != history.Pending || store.Value(state.Input) != `"in"` || state.Name != "HelloSeq" || state.Generation != 0 {
		t.Errorf("before the start: %+v", state)
	}
	runHello(t, h, "Tokyo")
	if state, err = h.Instance(t.Context(), "hello-1", provider.Fetch{Output: true}); err != nil {
		t.Fatal(err)
	}
	if state.Status != history.Completed || store.Value(state.Output) != `["Hello Tokyo!"]` || state.Input != nil || state.CompletedAt.IsZero() {
		t.Errorf("after the end: %+v", state)
	}
	events, err := h.History(t.Context(), "hello-1")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, ev := range events {
		types = append(types, ev.Type().String())
	}
	want := []string{
		"OrchestratorStarted", "ExecutionStarted", "TaskScheduled", "OrchestratorCompleted",
		"OrchestratorStarted", "TaskCompleted", "ExecutionCompleted", "OrchestratorCompleted",
	}
	if !slices.Equal(types, want) {
		t.Errorf("history %v, want %v", types, want)
	}
}

// The scanner reads the rows in the format that the service returns.
func TestRowScanner_ReadsRowsOfTheService(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	mustStart(t, h, "i", "e", `"in"`)
	runHello(t, h, "Tokyo", "Seattle")
	var s wire.RowScanner
	scanned, left := map[string]int{}, map[string]int{}
	err := h.instances.HistoryTable.All(t.Context(), store.Query{Filter: "PartitionKey eq 'i'"}, func(raw []byte) error {
		row, err := wire.DecodeColumns(raw)
		if err != nil {
			return err
		}
		got, ok := s.Decode(raw)
		if !ok {
			left[row.Columns.EventType]++
			return nil
		}
		scanned[row.Columns.EventType]++
		gotEvent, gotErr := got.Event()
		wantEvent, wantErr := row.Event()
		if diff := cmp.Diff([]any{wantEvent, wantErr}, []any{gotEvent, gotErr}); diff != "" {
			t.Errorf("the scanner reads another event (-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantScanned := map[string]int{"OrchestratorStarted": 3, "OrchestratorCompleted": 3, "TaskScheduled": 2, "TaskCompleted": 2}
	wantLeft := map[string]int{"ExecutionStarted": 1, "ExecutionCompleted": 1, "": 1}
	if diff := cmp.Diff([]map[string]int{wantScanned, wantLeft}, []map[string]int{scanned, left}); diff != "" {
		t.Errorf("rows that were read by the scanner, and others (-want +got):\n%s", diff)
	}
}
