package wire

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/google/go-cmp/cmp"
)

// The record of a code change has the columns of the event that wakes a rewound instance in .NET. .NET
// decodes rows by their columns' names (DurableTask.AzureStorage/TableEntityConverter.cs, Deserialize),
// and its replay ignores the type (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
func TestPatchMarkers_AreEventsThatDotNetIgnores(t *testing.T) {
	marker := history.NewPatch("check-fraud", time.Date(2026, 11, 20, 18, 34, 9, 141924300, time.UTC))
	row := EncodeHistoryRow(marker, "a", 1, "e")
	got := recordings.Columns(t, row.JSON())
	compared := 0
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "History" {
			continue
		}
		want := recordings.Columns(t, rec.Raw)
		if want["EventType"].Text() != history.TypeGenericEvent.String() || want["Data"].Text() == "" {
			continue
		}
		compared++
		for name, column := range want {
			if got[name].Type != column.Type {
				t.Errorf("%s: column %s has type %q, want %q as in .NET", &rec, name, got[name].Type, column.Type)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%s: .NET writes no column %s", &rec, name)
			}
		}
	}
	if compared == 0 {
		t.Error("no recording contains a GenericEvent")
	}
	const golden = `{"Data":"durable.Context.Patched: check-fraud","EventId":-1,"EventType":"GenericEvent","ExecutionId":"e","IsPlayed":false,` +
		`"PartitionKey":"a","RowKey":"0000000000000001","_Timestamp":"2026-11-20T18:34:09.1419243Z","_Timestamp@odata.type":"Edm.DateTime"}`
	var columns map[string]any
	if err := json.Unmarshal(row.JSON(), &columns); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(columns)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden, string(text)); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	read, err := DecodeHistoryRow(row.JSON())
	if err != nil {
		t.Fatal(err)
	}
	e, err := read.Event()
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := history.PatchOf(e); !ok || id != "check-fraud" {
		t.Errorf("PatchOf the decoded event = %q, %t", id, ok)
	}
}
