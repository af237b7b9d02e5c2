package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/google/go-cmp/cmp"
)

// sameRow compares the results of the scanner and of encoding/json. It reports whether the scanner
// accepted the row.
func sameRow(t *testing.T, s *RowScanner, raw []byte) (scanned bool) {
	t.Helper()
	got, ok := s.Decode(raw)
	if !ok {
		return false
	}
	want, err := DecodeColumns(raw)
	if err != nil {
		t.Fatalf("the scanner accepts an invalid row: %v\n%s", err, raw)
	}
	if got.RowKey != want.RowKey || got.ExecutionID != want.ExecutionID || got.ETag() != want.knownETag || got.EventType != want.EventType ||
		got.IsSentinel() || len(want.Blobs()) > 0 || !got.SameEvent(want) {
		t.Fatalf("read %+v, want %+v\n%s", got, want, raw)
	}
	ev, err := want.Event()
	if err != nil {
		t.Fatalf("the scanner accepts an invalid row: %v\n%s", err, raw)
	}
	if diff := cmp.Diff(ev, got.scanned); diff != "" {
		t.Fatalf("event (-want +got):\n%s\n%s", diff, raw)
	}
	return true
}

func TestRowScanner_DecodesAsEncodingJSON(t *testing.T) {
	t.Parallel()
	var s RowScanner
	scanned, all := map[string]int{}, 0
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "History" {
			continue
		}
		all++
		if row, err := DecodeHistoryRow(rec.Raw); err == nil && sameRow(t, &s, rec.Raw) {
			scanned[row.EventType.String()]++
		}
	}
	for ordinal, ev := range oneOfEach() {
		row := EncodeHistoryRow(ev, "i", ordinal, "e")
		sameRow(t, &s, row.JSON())
		sameRow(t, &s, recordings.AsReturned(row.JSON()))
	}
	for _, hot := range []string{
		"OrchestratorStarted", "OrchestratorCompleted", "TaskScheduled", "TaskCompleted", "TimerCreated", "TimerFired",
		"SubOrchestrationInstanceCreated", "SubOrchestrationInstanceCompleted", "EventSent", "EventRaised",
	} {
		if scanned[hot] == 0 {
			t.Errorf("the scanner accepted no %s among the %d rows of .NET: %v", hot, all, scanned)
		}
	}
}

func TestRowScanner_RejectsUnusualRows(t *testing.T) {
	t.Parallel()
	const good = `{"RowKey":"0000000000000001","EventType":"TaskCompleted","EventId":-1,"Result":"a"}`
	if !sameRow(t, new(RowScanner), []byte(good)) {
		t.Fatal("the scanner rejects a frequent row")
	}
	for _, change := range [][2]string{
		{`{"RowKey"`, `{ "RowKey"`},
		{`"EventId":-1`, `"EventId":-1.0`},
		{`"EventId":-1`, `"EventId":01`},
		{`"EventId":-1`, `"EventId":1234567890`},
		{`"EventId":-1`, `"EventId":"1"`},
		{`"EventId":-1`, `"eventid":-1`},
		{`"EventId":-1`, `"EventId":-1,"EventId":2`},
		{`"EventId":-1`, `"EventId":-1,"Extra":{}`},
		{`"EventId":-1`, `"EventId":-1,"IsPlayed":0`},
		{`"EventId":-1`, `"EventId":-1,"IsPlayed":falsehood`},
		{`"EventId":-1`, `"EventId":-1,"Tags":"{}"`},
		{`"EventId":-1`, `"EventId":-1,"PartitionKey":"\u0061"`},
		{`"EventId":-1`, `"EventId":-1,"Name":"\x"`},
		{`"EventId":-1`, `"EventId":-1,"ResultBlobName":"b"`},
		{`"EventId":-1`, `"EventId":-1,"_Timestamp":"2026-02-29T00:00:00Z"`},
		{`"EventId":-1`, `"EventId":-1,"_Timestamp":"2026-11-20T24:00:00Z"`},
		{`"EventId":-1`, `"EventId":-1,"_Timestamp":"2026-11-20T00:00:00+01:00"`},
		{`"EventId":-1`, `"EventId":-1,"_Timestamp":"2026-11-20T00:00:00.Z"`},
		{`"Result":"a"`, `"Result":"\ud83d\ude00"`},
		{`"Result":"a"`, `"Result":"\ud83d"`},
		{`"Result":"a"`, `"Result":"\u12g4"`},
		{`"Result":"a"`, `"Result":"\"`},
		{`"Result":"a"`, "\"Result\":\"a\tb\""},
		{`"Result":"a"`, "\"Result\":\"\xff\""},
		{`"Result":"a"`, `"Result":"a","Result":null`},
		{`"TaskCompleted"`, `"TaskForgotten"`},
		{`"TaskCompleted"`, `"TaskFailed"`},
		{`"0000000000000001"`, `"sentinel"`},
		{`"0000000000000001"`, `null`},
		{`"a"}`, `"a"`},
		{`"a"}`, `"a",}`},
		{`"a"}`, `"a"} `},
		{`"a"}`, `"a"}{}`},
		{`"a"}`, `"a`},
	} {
		raw := strings.Replace(good, change[0], change[1], 1)
		if raw == good {
			t.Errorf("the row does not contain %s", change[0])
		}
		if sameRow(t, new(RowScanner), []byte(raw)) {
			t.Errorf("the scanner accepts %s", raw)
		}
	}
	for i := range good {
		if _, ok := new(RowScanner).Decode([]byte(good[:i])); ok {
			t.Errorf("the scanner accepts %s", good[:i])
		}
	}
}

func TestScanTime_ParsesAsTimeParse(t *testing.T) {
	t.Parallel()
	at := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 4_000_000 / 137 {
		text := at.Format("2006-01-02T15:04:05.0000000Z")
		if n%3 == 0 {
			text = at.Format("2006-01-02T15:04:05.9999999Z")
		}
		if got, ok := scanTime([]byte(text)); !ok || !got.Equal(at) || got.Location() != time.UTC {
			t.Fatalf("scanTime(%s) = %v, %v", text, got, ok)
		}
		at = at.Add(137*24*time.Hour + 3*time.Hour + 7*time.Minute + 11*time.Second + 1234567800)
		if at.Year() > 9999 {
			break
		}
	}
	if at.Year() < 9999 {
		t.Errorf("the test ended at %v, too early", at)
	}
}

// The scanner reuses the string of the previous row only if the texts are equal.
func TestRowScanner_ReusesOnlyEqualTexts(t *testing.T) {
	t.Parallel()
	var s RowScanner
	for _, name := range []string{"A", "A", "B", "", `A\"`, "A", `\u0041`} {
		for _, execution := range []string{"e1", "e1", "", "e2"} {
			raw := fmt.Sprintf(`{"RowKey":"1","ExecutionId":"%s","EventType":"TaskScheduled","Name":"%s","Version":"%s"}`, execution, name, execution)
			if !sameRow(t, &s, []byte(raw)) {
				t.Errorf("the scanner rejects %s", raw)
			}
			raw = fmt.Sprintf(`{"RowKey":"1","EventType":"EventRaised","Input":"%s"}`, name)
			if !sameRow(t, &s, []byte(raw)) {
				t.Errorf("the scanner rejects %s", raw)
			}
		}
	}
}

// The scanner and encoding/json return the same result for every row that the scanner accepts.
func FuzzRowScanner(f *testing.F) {
	addRows(f, "History")
	for ordinal, ev := range oneOfEach() {
		row := EncodeHistoryRow(ev, "i", ordinal, "e")
		f.Add(row.JSON())
		f.Add(recordings.AsReturned(row.JSON()))
	}
	f.Add([]byte(`{"RowKey":"1","EventType":"TaskCompleted","Result":"\"\\\/\b\f\n\r\t\u0041\u00fc\u2028"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := RowScanner{executionID: "e", name: "Hello", version: "1.0"}
		sameRow(t, &s, raw)
		sameRow(t, &s, raw)
	})
}
