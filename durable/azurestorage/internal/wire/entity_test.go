package wire

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

func TestEntityJSON_AnnotatesDateTimes(t *testing.T) {
	e := Row{PartitionKey: "it's^0a\"key", RowKey: "é"}
	e.SetString("S", "a\"b\n'c'\u2028")
	e.setOptional("Null", nil)
	e.SetInt("I", -1)
	e.SetInt("TooLarge", math.MaxInt)
	e.setBool("B", true)
	e.SetTime("T", time.Date(2026, 11, 20, 18, 33, 36, 789905100, time.UTC))
	e.SetOptionalTime("NoTime", time.Time{})
	// Apostrophes in keys are doubled only in URLs.
	want := `{"PartitionKey":"it's^0a\"key","RowKey":"é","S":"a\"b\n'c'\u2028","I":-1,"TooLarge":2147483647,"B":true,` +
		`"T":"2026-11-20T18:33:36.7899051Z","T@odata.type":"Edm.DateTime"}`
	if diff := cmp.Diff(string(e.JSON()), want); diff != "" {
		t.Errorf("JSON (-got +want):\n%s", diff)
	}
}

func TestEntity_ReplacesAColumnThatIsSetAgain(t *testing.T) {
	e := Row{}
	e.SetString("A", "1")
	e.SetString("B", "2")
	e.SetString("A", "3")
	e.setOptional("B", nil)
	e.SetOptionalTime("A2", time.Time{})
	if diff := cmp.Diff(string(e.JSON()), `{"PartitionKey":"","RowKey":"","A":"3"}`); diff != "" {
		t.Errorf("JSON (-got +want):\n%s", diff)
	}
	if e.Text("A") != "3" || e.Text("B") != "" {
		t.Errorf("A is %q, B is %q", e.Text("A"), e.Text("B"))
	}
}

// DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// MaxTablePropertySizeInBytes: 60 KiB in UTF-16.
func TestLargeColumns_ExceedTheLimitOf30720CodeUnits(t *testing.T) {
	for _, c := range []struct {
		name   string
		column string
		text   string
		large  bool
	}{
		{"at the limit", "Input", strings.Repeat("x", 30720), false},
		{"one more", "Input", strings.Repeat("x", 30721), true},
		{"many bytes, few units", "Result", strings.Repeat("日", 30720), false},
		{"two units each", "Result", strings.Repeat("😀", 15360), false},
		{"two units each and one more", "Result", strings.Repeat("😀", 15360) + "x", true},
		{"a column that must stay", "CustomStatus", strings.Repeat("x", 40000), false},
		{"data of a generic event", "Data", strings.Repeat("x", 40000), false},
	} {
		e := Row{}
		e.SetString(c.column, c.text)
		if got := len(e.LargeColumns()) == 1; got != c.large {
			t.Errorf("%s: large columns %v", c.name, e.LargeColumns())
		}
	}
	e := Row{}
	for _, column := range LargeTextColumns {
		e.SetString(column, largeText)
	}
	if diff := cmp.Diff(e.LargeColumns(), LargeTextColumns[:]); diff != "" {
		t.Errorf("all large columns (-got +want):\n%s", diff)
	}
}

// AzureTableTrackingStore.cs, GetBlobName.
func TestColumnBlobName_MatchesDotNet(t *testing.T) {
	row := EncodeHistoryRow(&history.ExecutionCompleted{Result: &largeText}, "a/b", 2, "e")
	instance := EncodeNewInstance(&history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "instmid"}, Input: &largeText}, "Hub", "", time.Now())
	for _, c := range []struct {
		e      *Row
		column string
		random uint32
		want   string
	}{
		{&row, "Result", 0x00A8C441, "a^0b/history-0000000000000002-ExecutionCompleted-00A8C441-Result.json.gz"},
		{&row, "FailureDetails", 0xFFFFFFFF, "a^0b/history-0000000000000002-ExecutionCompleted-7FFFFFFF-FailureDetails.json.gz"},
		{&instance, "Input", 0x025DCB40, "instmid/history--Input-025DCB40-Input.json.gz"},
		{&instance, "Tags", 1, "instmid/history--Tags-00000001-Tags.json.gz"},
	} {
		if got := c.e.ColumnBlobName(c.column, c.random); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestOffload_ReplacesTheValueByTheBlobName(t *testing.T) {
	e := EncodeHistoryRow(&history.TaskCompleted{Result: &largeText}, "i", 5, "e")
	if got := e.BlobOf("Result"); got != "" {
		t.Errorf("before: %q", got)
	}
	e.Offload("Result", "i/blob")
	if e.Text("Result") != "" || e.BlobOf("Result") != "i/blob" || len(e.LargeColumns()) != 0 {
		t.Errorf("after: %s", e.JSON())
	}
}

// AzureTableTrackingStore.cs, GetEstimatedByteCount.
func TestSizeEstimate_CountsVariableColumnsInUTF16(t *testing.T) {
	e := EncodeHistoryRow(&history.EventRaised{Name: "n😀", Input: new("日本語")}, strings.Repeat("i", 500), 0, "e")
	if got, want := e.SizeEstimate(), 1024+2*3+2*3; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	e.SetString("CustomStatus", strings.Repeat("x", 100))
	if got, want := e.SizeEstimate(), 1024+2*3+2*3; got != want {
		t.Errorf("with another column: got %d, want %d", got, want)
	}
}

func TestTruncateUTF16_NeverSplitsACharacter(t *testing.T) {
	for _, c := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"a😀b", 2, "a"}, {"a😀b", 3, "a😀"}, {"日本語", 2, "日本"}, {"日本語", 3, "日本語"}, {"x", 0, ""},
	} {
		if got := truncateUTF16(c.s, c.limit); got != c.want {
			t.Errorf("truncateUTF16(%q, %d) = %q, want %q", c.s, c.limit, got, c.want)
		}
	}
}

// A row that the service rejects would block its instance.
func TestFit_ShortensWhatTheServiceRejects(t *testing.T) {
	long := strings.Repeat("é", 2<<20)
	for _, ev := range []history.Event{
		&history.GenericEvent{Data: &long}, &history.TaskScheduled{Version: long, ParentTraceContext: &history.TraceContext{TraceState: &long}},
		&history.ExecutionStarted{Version: long, Instance: history.OrchestrationInstance{InstanceID: long}}, &history.EventSent{InstanceID: long},
		&history.HistoryState{State: &long}, &history.ExecutionRewound{InstanceID: &long, ParentExecutionID: &long},
	} {
		e := EncodeHistoryRow(ev, "i", 0, "e")
		for _, p := range e.Properties {
			if !slices.Contains(LargeTextColumns[:], p.Name) && utf16Length(p.Text) > maxTextUnits {
				t.Errorf("%s: column %s has %d characters", ev.Type(), p.Name, utf16Length(p.Text))
			}
		}
		if row, err := DecodeHistoryRow(e.JSON()); err != nil {
			t.Errorf("%s: %v", ev.Type(), err)
		} else if _, err := row.Event(); err != nil {
			t.Errorf("%s: %v", ev.Type(), err)
		}
	}
}
