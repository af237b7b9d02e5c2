package tracking

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

var trackedInstance = history.OrchestrationInstance{InstanceID: "order/1", ExecutionID: "8747b3a4"}

// trackedEvents is the history of an execution in two episodes.
func trackedEvents() []history.Event {
	head := func(id, second int) history.Header {
		return history.Header{EventID: id, Timestamp: time.Date(2026, 1, 5, 10, 20, 30+second, 123456700, time.UTC)}
	}
	none := history.NoEventID
	return []history.Event{
		&history.OrchestratorStarted{Header: head(none, 0)},
		&history.ExecutionStarted{Header: head(none, 0), Instance: trackedInstance, Name: "Order", Input: new(`"book"`)},
		&history.TaskScheduled{Header: head(0, 1), Name: "Charge"},
		&history.OrchestratorCompleted{Header: head(none, 1)},
		&history.OrchestratorStarted{Header: head(none, 2)},
		&history.TaskFailed{Header: head(none, 2), TaskScheduledID: 0, Reason: new("declined"), Failure: &history.FailureDetails{ErrorType: "E", ErrorMessage: "declined"}},
		&history.ExecutionCompleted{Header: head(1, 3), Status: history.Failed, Result: new("declined")},
		&history.OrchestratorCompleted{Header: head(none, 3)},
	}
}

func trackedRows(at *position, events ...history.Event) (rows []wire.Row) {
	for _, ev := range events {
		rows = at.add(rows, trackedInstance, ev)
	}
	return rows
}

// The rows are the rows of the history with a number. After each episode, one more row has the status.
func TestTracking_NumbersTheRowsOfTheHistory(t *testing.T) {
	var got []string
	for _, row := range trackedRows(new(position), trackedEvents()...) {
		got = append(got, string(row.JSON()))
	}
	const keys = `{"PartitionKey":"order^01","RowKey":"20260105T102030.1234567Z_8747b3a4_%016X",`
	tail := func(id int, second int, kind string, number int) string {
		return fmt.Sprintf(`"EventId":%d,"IsPlayed":false,"_Timestamp":"2026-01-05T10:20:%d.1234567Z","_Timestamp@odata.type":"Edm.DateTime",`+
			`"EventType":"%s","ExecutionId":"8747b3a4","SequenceNumber":%d}`, id, 30+second, kind, number)
	}
	members := []struct {
		columns    string
		id, second int
		kind       string
	}{
		{"", -1, 0, "OrchestratorStarted"},
		{`"OrchestrationInstance":"{\"InstanceId\":\"order/1\",\"ExecutionId\":\"8747b3a4\"}",` +
			`"ParentInstance":"null","Name":"Order","Version":"","Input":"\"book\"","Tags":"null","ParentTraceContext":"null","GenerateNewTrace":false,`, -1, 0, "ExecutionStarted"},
		{`"Name":"Charge","Version":"","ParentTraceContext":"null","Tags":"null",`, 0, 1, "TaskScheduled"},
		{"", -1, 1, "OrchestratorCompleted"},
		{`"State":"{\"OrchestrationStatus\":\"Running\"}",`, -1, 1, "HistoryState"},
		{"", -1, 2, "OrchestratorStarted"},
		{`"TaskScheduledId":0,"Reason":"declined","FailureDetails":"{\"ErrorType\":\"E\",\"ErrorMessage\":\"declined\",\"StackTrace\":null,` +
			`\"InnerFailure\":null,\"IsNonRetriable\":false,\"Properties\":null}",`, -1, 2, "TaskFailed"},
		{`"OrchestrationStatus":"Failed","Result":"declined","FailureDetails":"null",`, 1, 3, "ExecutionCompleted"},
		{"", -1, 3, "OrchestratorCompleted"},
		{`"State":"{\"OrchestrationStatus\":\"Failed\"}",`, -1, 3, "HistoryState"},
	}
	var want []string
	for i, m := range members {
		want = append(want, fmt.Sprintf(keys, i)+m.columns+tail(m.id, m.second, m.kind, i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The rows of a whole history equal the rows of its episodes.
func TestTracking_DerivesRowsFromTheHistory(t *testing.T) {
	events := trackedEvents()
	whole := trackedRows(new(position), events...)
	stored := State{Column: `{"ExecutionId":"8747b3a4","Events":4}`}
	rest, err := stored.Unsent(trackedInstance, events)
	if err != nil || wire.RowsJSON(rest) != wire.RowsJSON(whole[5:]) {
		t.Errorf("after four events: %s, %v", wire.RowsJSON(rest), err)
	}
	if rest, err := stored.Unsent(trackedInstance, events); err != nil || len(rest) != 0 {
		t.Errorf("after all events: %s, %v", wire.RowsJSON(rest), err)
	}
	other := State{Column: `{"ExecutionId":"of before","Events":4}`}
	if rest, err := other.Unsent(trackedInstance, events); err != nil || wire.RowsJSON(rest) != wire.RowsJSON(whole) {
		t.Errorf("with a mark of the previous execution: %s, %v", wire.RowsJSON(rest), err)
	}
}

func TestTracking_MessagesKeepRowsUnchanged(t *testing.T) {
	rows := trackedRows(new(position), trackedEvents()...)
	got, err := wire.DecodeRows([]byte(wire.RowsJSON(rows)))
	if err != nil || wire.RowsJSON(got) != wire.RowsJSON(rows) {
		t.Errorf("%s\n%v, want\n%s", wire.RowsJSON(got), err, wire.RowsJSON(rows))
	}
	for text, want := range map[string]string{
		"":                          "decode tracking message",
		`{"Rows":[]}`:               "no rows",
		`{"Rows":[7]}`:              "row 0: it is not an object",
		`{"Rows":[{"RowKey":"r"}]}`: "row 0: it has no keys",
		`{"Rows":[{"PartitionKey":"p","RowKey":"r","A":{"B":1}}]}`:                    "column A",
		`{"Rows":[{"PartitionKey":"p","RowKey":"r","A":1.5}]}`:                        "column A",
		`{"Rows":[{"PartitionKey":"p","RowKey":"r","A":"x","A@odata.type":"Other"}]}`: `unknown type "Other"`,
		`{"Rows":[{"PartitionKey":"p","RowKey":"r","A@odata.type":"Edm.DateTime"}]}`:  "its type precedes its value",
	} {
		if _, err := wire.DecodeRows([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

// Whatever the payloads are, every row fits into a message, and every message into a queue in any
// encoding.
func TestTracking_ShortensLargeTexts(t *testing.T) {
	at := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{strings.Repeat("x", 100_000), strings.Repeat("\x01", 100_000), strings.Repeat(`"\`, 50_000), strings.Repeat("ü€😀", 20_000), strings.Repeat("\xff", 100_000)} {
		tags := map[string]string{"tag": text}
		failure := &history.FailureDetails{ErrorType: text, ErrorMessage: text, StackTrace: &text, Properties: tags}
		var position position
		rows := trackedRows(
			&position,
			&history.ExecutionStarted{
				Header: history.NewHeader(at), Instance: trackedInstance, Name: text, Version: text, Input: &text, Tags: tags, Correlation: &text,
				Parent: &history.ParentInstance{Name: text}, ParentTraceContext: &history.TraceContext{TraceParent: text},
			},
			&history.TaskFailed{Header: history.NewHeader(at), Reason: &text, Details: &text, Failure: failure},
			&history.ExecutionCompleted{Header: history.NewHeader(at), Status: history.Failed, Result: &text, Failure: failure},
			&history.SubOrchestrationInstanceCreated{Header: history.NewHeader(at), Name: text, Version: text, Input: &text, ClientSpanID: &text, Tags: tags},
			&history.ExecutionRewound{Header: history.NewHeader(at), Reason: &text, ParentExecutionID: &text, InstanceID: &text},
		)
		for i := range rows {
			if n := len(rows[i].JSON()); n > wire.MaxTrackingBytes {
				t.Errorf("row %d of %q… has %d bytes", i, text[:4], n)
			}
			if _, err := decodeRecord(rows[i].JSON()); err != nil {
				t.Errorf("row %d of %q…: %v", i, text[:4], err)
			}
			if !strings.Contains(rows[i].Text("Shortened"), "Re") && !strings.Contains(rows[i].Text("Shortened"), "Name") {
				t.Errorf("row %d lists %q as shortened", i, rows[i].Text("Shortened"))
			}
		}
		for _, part := range wire.SplitTracking(rows) {
			if n := len(wire.EncodeQueueText([]byte(wire.RowsJSON(part)), true)); n > 64<<10 {
				t.Errorf("a message of %q… has %d bytes", text[:4], n)
			}
		}
		record, err := decodeRecord(rows[1].JSON())
		if f, ok := record.Event.(*history.TaskFailed); err != nil || !ok || f.Failure == nil || !slices.Contains(record.Shortened, "FailureDetails") {
			t.Errorf("%+v, %v", record, err)
		}
	}
}

func TestTracking_MarkHoldsTheReplacedEpisodeOfAnySize(t *testing.T) {
	var few, many []wire.Row
	at := position{events: 3, rows: 4}
	for i := range 2000 {
		ev := &history.EventRaised{Header: history.NewHeader(time.Unix(int64(i), 0)), Name: fmt.Sprint("event ", i), Input: new(fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)})))}
		many = at.add(many, trackedInstance, ev)
	}
	few = many[:50]
	short := withoutTexts(many)
	ends := slices.Concat(short[:1], short[len(short)-rowsOfEnd:])
	for name, tt := range map[string]struct{ rows, want []wire.Row }{
		"nothing": {}, "as much as usual": {few, few},
		"as much as a process takes at once": {many[:1000], short[:1000]}, "more than that": {many, ends},
	} {
		text, err := mark{ExecutionID: "new"}.encodeShortened(tt.rows)
		if err != nil || len(text) > maxMarkBytes {
			t.Fatalf("%s: %d bytes, %v", name, len(text), err)
		}
		mark, before, err := decodeMark(text)
		if err != nil || mark.ExecutionID != "new" || len(before) != len(tt.want) || len(before) > 0 && wire.RowsJSON(before) != wire.RowsJSON(tt.want) {
			t.Errorf("%s: %d rows, want %d; %v", name, len(before), len(tt.want), err)
		}
	}
	for _, text := range []string{"{", `{"Before":"?"}`, `{"Before":"eA=="}`} {
		if _, _, err := decodeMark(text); err == nil || !strings.Contains(err.Error(), "column Tracking") {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func FuzzDecodeRows(f *testing.F) {
	f.Add([]byte(wire.RowsJSON(trackedRows(new(position), trackedEvents()...))))
	f.Add([]byte(`{"Rows":[{"PartitionKey":"p","RowKey":"r","A":1,"B":true,"C":"x"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		rows, err := wire.DecodeRows(raw)
		if err != nil {
			return
		}
		text := wire.RowsJSON(rows)
		again, err := wire.DecodeRows([]byte(text))
		if err != nil || wire.RowsJSON(again) != text || !json.Valid([]byte(text)) {
			t.Errorf("%s is read as %s, %v", text, wire.RowsJSON(again), err)
		}
	})
}
