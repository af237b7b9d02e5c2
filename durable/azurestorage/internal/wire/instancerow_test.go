package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

var (
	checkpointedAt = time.Date(2026, 11, 20, 18, 0, 9, 0, time.UTC)
	lastEventAt    = time.Date(2026, 11, 20, 18, 0, 3, 0, time.UTC)
)

// merged returns the columns of a checkpoint's merge, without the columns of every checkpoint.
func merged(t *testing.T, rows []Row, events ...history.Event) map[string]any {
	t.Helper()
	events = append(events, &history.OrchestratorCompleted{Header: history.NewHeader(lastEventAt)})
	e := EncodeInstanceCheckpoint(InstanceCheckpoint{
		Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"},
		TaskHub:  "Hub",
		Events:   events,
		Rows:     rows,
		BlobURL:  func(name string) string { return "blob:" + name },
		Now:      checkpointedAt,
	})
	got := map[string]any{}
	for name, v := range recordings.Columns(t, e.JSON()) {
		got[name] = v.Value
	}
	for name, want := range map[string]any{
		"PartitionKey": "i", "RowKey": "", "ExecutionId": "e", "TaskHubName": "Hub", "CustomStatus": "null", "LastUpdatedTime": "2026-11-20T18:00:03.0000000Z",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
		delete(got, name)
	}
	return got
}

// AzureTableTrackingStore.cs, UpdateStateAsync.
func TestInstanceCheckpoint_DerivesTheColumnsFromTheEvents(t *testing.T) {
	const now = "2026-11-20T18:00:09.0000000Z"
	started := history.NewHeader(time.Date(2026, 11, 20, 17, 0, 0, 0, time.UTC))
	failure := &history.FailureDetails{ErrorType: "main.Err", ErrorMessage: "kaboom"}
	for _, c := range []struct {
		name   string
		events []history.Event
		want   map[string]any
	}{
		{"events without an effect on the row", []history.Event{&history.TaskCompleted{Result: new("1")}}, map[string]any{}},
		{"a start", []history.Event{&history.ExecutionStarted{Header: started, Name: "N", Version: "1", Input: new("5"), Generation: new(2), Tags: map[string]string{"a": "b"}}}, map[string]any{
			"Name": "N", "Version": "1", "CreatedTime": "2026-11-20T17:00:00.0000000Z", "RuntimeStatus": "Running", "Input": "5",
			"Generation": 2.0, "Tags": map[string]any{"a": "b"},
		}},
		{"the start of a child, scheduled", []history.Event{&history.ExecutionStarted{Header: started, Name: "N", ScheduledStart: lastEventAt}}, map[string]any{
			"Name": "N", "Version": "", "CreatedTime": "2026-11-20T17:00:00.0000000Z", "RuntimeStatus": "Running", "Tags": nil,
			"ScheduledStartTime": "2026-11-20T18:00:03.0000000Z",
		}},
		{"completion", []history.Event{&history.ExecutionCompleted{Status: history.Completed, Result: new(`"out"`)}}, map[string]any{
			"RuntimeStatus": "Completed", "CompletedTime": now, "Output": `"out"`,
		}},
		{"completion without output", []history.Event{&history.ExecutionCompleted{Status: history.Completed}}, map[string]any{
			"RuntimeStatus": "Completed", "CompletedTime": now,
		}},
		{"failure with details", []history.Event{&history.ExecutionCompleted{Status: history.Failed, Result: new("kaboom"), Failure: failure}}, map[string]any{
			"RuntimeStatus": "Failed", "CompletedTime": now, "Output": "main.Err: kaboom",
		}},
		{"failure without details", []history.Event{&history.ExecutionCompleted{Status: history.Failed, Result: new("kaboom")}}, map[string]any{
			"RuntimeStatus": "Failed", "CompletedTime": now, "Output": "kaboom",
		}},
		{"termination, then completion", []history.Event{
			&history.ExecutionTerminated{Reason: new("enough")}, &history.ExecutionCompleted{Status: history.Terminated, Result: new("enough, really")},
		}, map[string]any{"RuntimeStatus": "Terminated", "CompletedTime": now, "Output": "enough, really"}},
		{"termination", []history.Event{&history.ExecutionTerminated{Reason: new("enough")}}, map[string]any{
			"RuntimeStatus": "Terminated", "CompletedTime": now, "Output": "enough",
		}},
		{"suspension", []history.Event{&history.ExecutionSuspended{Reason: new("hold")}}, map[string]any{"RuntimeStatus": "Suspended", "Output": "hold"}},
		{"suspension and resumption", []history.Event{
			&history.ExecutionSuspended{Reason: new("hold")}, &history.ExecutionResumed{Reason: new("go")},
		}, map[string]any{"RuntimeStatus": "Running", "Output": "go"}},
		{"the last value is null", []history.Event{
			&history.ExecutionSuspended{Reason: new("hold")}, &history.ExecutionResumed{},
		}, map[string]any{"RuntimeStatus": "Running"}},
		{"continue-as-new of old versions", []history.Event{&history.ContinueAsNew{Result: new("6")}}, map[string]any{"RuntimeStatus": "ContinuedAsNew", "Output": "6"}},
		{"a reason that .NET would interpret as a URL", []history.Event{&history.ExecutionTerminated{Reason: new("stop:now")}}, map[string]any{
			"RuntimeStatus": "Terminated", "CompletedTime": now, "Output": "stop:now ",
		}},
	} {
		got := merged(t, nil, c.events...)
		if diff := cmp.Diff(got, c.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", c.name, diff)
		}
	}
}

// AzureTableTrackingStore.cs, SetInstancesTablePropertyFromHistoryProperty.
func TestInstanceCheckpoint_RefersToTheBlobsOfItsHistory(t *testing.T) {
	for _, c := range []struct {
		ev            history.Event
		column, where string
	}{
		{&history.ExecutionStarted{Input: &largeText}, "Input", "Input"},
		{&history.ExecutionCompleted{Result: &largeText}, "Result", "Output"},
		{&history.ExecutionCompleted{Result: &largeText, Failure: &history.FailureDetails{ErrorMessage: largeText}}, "Result", "Output"},
		{&history.ExecutionTerminated{Reason: &largeText}, "Input", "Output"},
		{&history.ExecutionSuspended{Reason: &largeText}, "Reason", "Output"},
		{&history.ExecutionResumed{Reason: &largeText}, "Reason", "Output"},
		{&history.ContinueAsNew{Result: &largeText}, "Result", "Output"},
	} {
		row := EncodeHistoryRow(c.ev, "i", 0, "e")
		row.Offload(c.column, "theblob")
		if got := merged(t, []Row{row, {}}, c.ev)[c.where]; got != "blob:theblob" {
			t.Errorf("%T: %s is %.40q", c.ev, c.where, got)
		}
	}
}

// The output of a failure contains the type and the message. It may be too large although the message
// in the history is not.
func TestInstanceCheckpoint_ShortensAnOutputThatDoesNotFit(t *testing.T) {
	message := strings.Repeat("m", MaxColumnUnits)
	got, _ := merged(t, nil, &history.ExecutionCompleted{
		Status: history.Failed, Result: &message, Failure: &history.FailureDetails{ErrorType: "E", ErrorMessage: message},
	})["Output"].(string)
	if utf16Length(got) != MaxColumnUnits || !strings.HasPrefix(got, "E: mmm") || !strings.HasSuffix(got, provider.TruncationMark) {
		t.Errorf("Output has %d characters: %.40q", len(got), got)
	}
}

// The output in the row is the reason of a resume. If the blob with the reason will be deleted, the row
// must no longer refer to it. All other columns keep their values.
func TestInstanceCheckpoint_RemovesAnOutputWhoseBlobIsDeleted(t *testing.T) {
	for blob, want := range map[string]bool{
		"i/history-000000000000002C-ExecutionResumed-1F8269D2-Reason.json.gz":      true,
		"i/history-000000000000002C-ExecutionSuspended-1F8269D2-Reason.json.gz":    true,
		"i/history-0000000000000001-ExecutionStarted-1F8269D2-Input.json.gz":       false,
		"i-Reason.json.gz/history-0000000000000003-TaskCompleted-1-Result.json.gz": false,
	} {
		e := EncodeInstanceCheckpoint(InstanceCheckpoint{Events: []history.Event{&history.ExecutionStarted{}}, Replaced: []string{blob}})
		if output, is := e.LookUp("Output"); is != want || output != "" {
			t.Errorf("%s: output %q, written %v; want written %v", blob, output, is, want)
		}
	}
	for status, want := range map[string]bool{"Running": false, "Completed": true} {
		row, err := DecodeInstanceRow([]byte(`{"PartitionKey":"i","RuntimeStatus":"` + status + `","Output":""}`))
		if err != nil {
			t.Fatal(err)
		}
		if is := row.State.Output != nil; is != want {
			t.Errorf("%s with an empty output: has an output %v, want %v", status, is, want)
		}
	}
}

func TestInstanceCheckpoint_WritesTheCustomStatus(t *testing.T) {
	e := EncodeInstanceCheckpoint(InstanceCheckpoint{
		Events: []history.Event{&history.OrchestratorCompleted{}}, CustomStatus: new(`{"a":1}`),
	})
	if got := e.Text("CustomStatus"); got != `{"a":1}` {
		t.Errorf("CustomStatus is %q", got)
	}
}

func TestEncodeTerminatedBeforeStart_GuardsTheReason(t *testing.T) {
	e := EncodeEndedBeforeStart("a/b", history.Terminated, new("stop:now"), lastEventAt, checkpointedAt)
	want := `{"PartitionKey":"a^0b","RowKey":"","RuntimeStatus":"Terminated",` +
		`"LastUpdatedTime":"2026-11-20T18:00:03.0000000Z","LastUpdatedTime@odata.type":"Edm.DateTime",` +
		`"CompletedTime":"2026-11-20T18:00:09.0000000Z","CompletedTime@odata.type":"Edm.DateTime","Output":"stop:now "}`
	if diff := cmp.Diff(string(e.JSON()), want); diff != "" {
		t.Errorf("row (-got +want):\n%s", diff)
	}
}

func TestDecodeInstanceRow_ReadsIncompleteRows(t *testing.T) {
	created := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, raw string
		want      InstanceRow
	}{
		{"keys only", `{"PartitionKey":"a^0b","RowKey":""}`, InstanceRow{State: provider.InstanceState{
			Instance: history.OrchestrationInstance{InstanceID: "a/b"}, Status: -1,
		}}},
		{
			"all", `{"odata.etag":"W/\"1\"","PartitionKey":"i","ExecutionId":"e","Name":"N","Version":"1","Input":"5","Output":"6","CustomStatus":"\"s\"",` +
				`"CreatedTime":"2026-11-20T18:00:00.0000000Z","LastUpdatedTime":"2026-11-20T18:00:00Z","CompletedTime":"2026-11-20T18:00:00","RuntimeStatus":"Failed",` +
				`"ScheduledStartTime":"2026-11-20T18:00:00Z","Generation":3,"Tags":"{\"$type\":\"x\",\"a\":\"b\"}","InputBlobName":"blob","Novelty":[1]}`,
			InstanceRow{ETag: `W/"1"`, Generation: new(3), InputBlob: "blob", State: provider.InstanceState{
				Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}, Name: "N", Version: "1", Status: history.Failed,
				Input: new("5"), Output: new("6"), CustomStatus: new(`"s"`), CreatedAt: created, LastUpdatedAt: created, CompletedAt: created,
				ScheduledAt: created, Generation: 3, Tags: map[string]string{"a": "b"},
			}},
		},
		{
			"null texts and an unknown status", `{"PartitionKey":"i","CustomStatus":"null","Tags":"null","RuntimeStatus":"Lost"}`,
			InstanceRow{State: provider.InstanceState{Instance: history.OrchestrationInstance{InstanceID: "i"}, Status: -1}},
		},
	} {
		got, err := DecodeInstanceRow([]byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(*got, c.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", c.name, diff)
		}
	}
	for _, raw := range []string{``, `[]`, `{"Generation":"x"}`, `{"CreatedTime":"soon"}`, `{"PartitionKey":"i","Tags":"{"}`} {
		if got, err := DecodeInstanceRow([]byte(raw)); err == nil {
			t.Errorf("%s: decoded as %+v", raw, got)
		}
	}
}

func TestInstanceColumns_OmitUnwantedColumns(t *testing.T) {
	has := func(fetch provider.Fetch, column string) bool {
		for _, c := range InstanceColumns(fetch) {
			if c == column {
				return true
			}
		}
		return false
	}
	for _, c := range []struct {
		fetch  provider.Fetch
		column string
		want   bool
	}{
		{provider.Fetch{}, "Input", false},
		{provider.Fetch{}, "Output", false},
		{provider.Fetch{}, "ExecutionId", true},
		{provider.Fetch{}, "PartitionKey", true},
		{provider.Fetch{Input: true}, "Input", true},
		{provider.Fetch{Input: true}, "InputBlobName", true},
		{provider.Fetch{Input: true}, "Output", false},
		{provider.Fetch{Output: true}, "Output", true},
		{provider.Fetch{Output: true}, "Input", false},
	} {
		if got := has(c.fetch, c.column); got != c.want {
			t.Errorf("%+v selects %s: %t, want %t", c.fetch, c.column, got, c.want)
		}
	}
}
