package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

func TestHistoryRows_RoundTripEveryEvent(t *testing.T) {
	for ordinal, want := range oneOfEach() {
		e := EncodeHistoryRow(want, "a/b'c", ordinal, "8747b3a46089446a9771b91d72f57a5a")
		body := e.JSON()
		if !json.Valid(body) {
			t.Fatalf("%T: not JSON: %s", want, body)
		}
		row, err := DecodeHistoryRow(body)
		if err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		if row.IsSentinel() || row.RowKey != HistoryRowKey(ordinal) || row.ExecutionID != "8747b3a46089446a9771b91d72f57a5a" || e.PartitionKey != "a^0b'c" {
			t.Errorf("%T: row %+v of partition %q", want, row, e.PartitionKey)
		}
		got, err := row.Event()
		if err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%T (-got +want):\n%s", want, diff)
		}
	}
}

// The event has all members. As in .NET's converter, objects are JSON without $type.
func TestEncodeHistoryRow_WritesObjectsAsPlainJSON(t *testing.T) {
	ev := &history.ExecutionStarted{
		Header:             history.Header{EventID: -1, IsPlayed: true, Timestamp: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)},
		Instance:           history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"},
		Parent:             &history.ParentInstance{Name: "P", Version: "", Instance: history.OrchestrationInstance{InstanceID: "p", ExecutionID: "pe"}, TaskScheduleID: 3},
		Name:               "N",
		Tags:               map[string]string{"t1": "v1"},
		ParentTraceContext: &history.TraceContext{TraceParent: "00-1"},
	}
	e := EncodeHistoryRow(ev, "i", 1, "e")
	want := `{"PartitionKey":"i","RowKey":"0000000000000001","OrchestrationInstance":"{\"InstanceId\":\"i\",\"ExecutionId\":\"e\"}",` +
		`"ParentInstance":"{\"Name\":\"P\",\"OrchestrationInstance\":{\"InstanceId\":\"p\",\"ExecutionId\":\"pe\"},\"TaskScheduleId\":3,\"Version\":\"\"}",` +
		`"Name":"N","Version":"","Tags":"{\"t1\":\"v1\"}",` +
		`"ParentTraceContext":"{\"TraceParent\":\"00-1\",\"TraceState\":null,\"Id\":null,\"SpanId\":null,\"ActivityStartTime\":null}",` +
		`"GenerateNewTrace":false,` +
		`"EventId":-1,"IsPlayed":true,"_Timestamp":"2026-11-20T18:00:00.0000000Z","_Timestamp@odata.type":"Edm.DateTime",` +
		`"EventType":"ExecutionStarted","ExecutionId":"e"}`
	if diff := cmp.Diff(string(e.JSON()), want); diff != "" {
		t.Errorf("row (-got +want):\n%s", diff)
	}
}

// Only the last batch of a checkpoint has the time (AzureTableTrackingStore.cs, UploadHistoryBatch).
func TestEncodeSentinel_MarksTheLastBatch(t *testing.T) {
	at := time.Date(2026, 11, 20, 18, 33, 36, 821737200, time.UTC)
	last, other := EncodeSentinel("a/b", "e", true, at), EncodeSentinel("a/b", "e", false, at)
	want := `{"PartitionKey":"a^0b","RowKey":"sentinel","ExecutionId":"e","IsCheckpointComplete":true,` +
		`"CheckpointCompletedTimestamp":"2026-11-20T18:33:36.8217372Z","CheckpointCompletedTimestamp@odata.type":"Edm.DateTime"}`
	if diff := cmp.Diff(string(last.JSON()), want); diff != "" {
		t.Errorf("last (-got +want):\n%s", diff)
	}
	want = `{"PartitionKey":"a^0b","RowKey":"sentinel","ExecutionId":"e","IsCheckpointComplete":false}`
	if diff := cmp.Diff(string(other.JSON()), want); diff != "" {
		t.Errorf("other (-got +want):\n%s", diff)
	}
	row, err := DecodeHistoryRow([]byte(`{"odata.etag":"W/\"1\"",` + string(last.JSON())[1:]))
	if err != nil || !row.IsSentinel() || row.ExecutionID != "e" || row.knownETag != `W/"1"` {
		t.Errorf("read back as %+v, %v", row, err)
	}
}

func TestDecodeHistoryRow_RejectsAnUnknownType(t *testing.T) {
	for _, raw := range []string{
		`{"RowKey":"0000000000000007","EventType":"TaskForgotten"}`,
		`{"RowKey":"0000000000000007","EventType":"4"}`,
		`{"RowKey":"0000000000000007"}`,
		`{"RowKey":"0000000000000007","EventType":"OrchestratorStarted","EventId":"x"}`,
		`[]`, ``, `{`,
	} {
		if row, err := DecodeHistoryRow([]byte(raw)); err == nil {
			t.Errorf("%s: decoded as %+v", raw, row)
		}
	}
	_, err := DecodeHistoryRow([]byte(`{"RowKey":"0000000000000007","EventType":"TaskForgotten"}`))
	for _, want := range []string{"0000000000000007", "TaskForgotten"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestHistoryRow_RejectsAnInvalidEvent(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"an event type without a class", `{"EventType":"ExecutionFailed"}`, "no class"},
		{"an unknown status", `{"EventType":"ExecutionCompleted","OrchestrationStatus":"Lost"}`, `"Lost"`},
		{"a column that is not JSON", `{"EventType":"ExecutionStarted","ParentInstance":"{"}`, "column ParentInstance"},
		{"a value in a blob", `{"EventType":"TaskCompleted","Result":"","ResultBlobName":"i/x"}`, `Result is in blob "i/x"`},
	} {
		row, err := DecodeHistoryRow([]byte(c.raw))
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := row.Event(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want an error about %s", c.name, ev, err, c.want)
		}
	}
}

func TestHistoryRow_ResolvesBlobs(t *testing.T) {
	raw := `{"EventType":"TaskFailed","TaskScheduledId":2`
	for _, column := range []string{"Reason", "Details", "FailureDetails"} {
		raw += `,"` + column + `":"","` + column + `BlobName":"b-` + column + `"`
	}
	row, err := DecodeHistoryRow([]byte(raw + "}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []ColumnBlob{{"Reason", "b-Reason"}, {"Details", "b-Details"}, {"FailureDetails", "b-FailureDetails"}}
	if diff := cmp.Diff(row.Blobs(), want); diff != "" {
		t.Errorf("blobs (-got +want):\n%s", diff)
	}
	row.Resolve("Reason", "r")
	row.Resolve("Details", "d")
	row.Resolve("FailureDetails", `{"ErrorType":"E","ErrorMessage":"m"}`)
	if blobs := row.Blobs(); len(blobs) != 0 {
		t.Errorf("unresolved blobs: %+v, want none", blobs)
	}
	got, err := row.Event()
	if err != nil {
		t.Fatal(err)
	}
	wantEvent := &history.TaskFailed{
		TaskScheduledID: 2, Reason: new("r"), Details: new("d"), Failure: &history.FailureDetails{ErrorType: "E", ErrorMessage: "m"},
	}
	if diff := cmp.Diff(history.Event(wantEvent), got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func TestHistoryRow_ResolvesEveryLargeColumn(t *testing.T) {
	start := `{"EventType":"ExecutionStarted","NameBlobName":"1","InputBlobName":"2","CorrelationBlobName":"3","TagsBlobName":"4"}`
	row, err := DecodeHistoryRow([]byte(start))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range row.Blobs() {
		text := "v" + b.Blob
		if b.Column == "Tags" {
			text = `{"k":"v4"}`
		}
		row.Resolve(b.Column, text)
	}
	got, err := row.Event()
	if err != nil {
		t.Fatal(err)
	}
	want := &history.ExecutionStarted{Name: "v1", Input: new("v2"), Correlation: new("v3"), Tags: map[string]string{"k": "v4"}}
	if diff := cmp.Diff(got, history.Event(want)); diff != "" {
		t.Errorf("event (-got +want):\n%s", diff)
	}
	row, err = DecodeHistoryRow([]byte(`{"EventType":"TaskCompleted","ResultBlobName":"1","OutputBlobName":"2"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range row.Blobs() {
		row.Resolve(b.Column, "v"+b.Blob)
	}
	if got, err = row.Event(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, history.Event(&history.TaskCompleted{Result: new("v1")})); diff != "" {
		t.Errorf("event (-got +want):\n%s", diff)
	}
}

// Version 1 of DurableTask.AzureStorage omits null columns, which later versions write as the text null.
// Later versions may add columns.
func TestHistoryRow_ReadsOldAndNewRows(t *testing.T) {
	for _, raw := range []string{
		`{"EventType":"ExecutionStarted","Name":"N","EventId":-1,"OrchestrationInstance":"{\"InstanceId\":\"i\"}"}`,
		`{"EventType":"ExecutionStarted","Name":"N","EventId":-1,"OrchestrationInstance":"{\"InstanceId\":\"i\",\"X\":1}","Tags":"null","ParentInstance":"null","ParentTraceContext":"null","Novelty":{"a":1},"Version":null}`,
	} {
		row, err := DecodeHistoryRow([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		got, err := row.Event()
		if err != nil {
			t.Fatal(err)
		}
		want := &history.ExecutionStarted{Header: history.Header{EventID: -1}, Name: "N", Instance: history.OrchestrationInstance{InstanceID: "i"}}
		if diff := cmp.Diff(got, history.Event(want)); diff != "" {
			t.Errorf("%s (-got +want):\n%s", raw, diff)
		}
	}
}
