package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/google/go-cmp/cmp"
)

// recordedTime returns the value of a DateTime column, zero if it is null.
func recordedTime(t *testing.T, v recordings.EDMValue) time.Time {
	t.Helper()
	if v.Value == nil {
		return time.Time{}
	}
	at, err := eventjson.ParseTime(v.Text())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// sentStarts returns the start messages of the recordings, by execution ID. It omits messages in blobs,
// because the recordings do not contain the blobs.
func sentStarts(t *testing.T) map[string]*history.ExecutionStarted {
	t.Helper()
	starts := map[string]*history.ExecutionStarted{}
	for _, m := range recordings.Messages(t) {
		env, err := DecodeEnvelope(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		if env.Message == nil {
			continue
		}
		if start, ok := env.Message.Event.(*history.ExecutionStarted); ok {
			starts[start.Instance.ExecutionID] = start
		}
	}
	return starts
}

// Every row that a .NET client wrote for a new instance is encoded again: from the client's start
// message, or, if the message is in a blob, from the row itself.
func TestNewInstances_AreEncodedAsByDotNet(t *testing.T) {
	starts := sentStarts(t)
	counts := map[string]int{}
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "Instances" || rec.Verb != "POST" && rec.Verb != "PUT" {
			continue
		}
		counts[rec.Verb]++
		want := recordings.Columns(t, rec.Raw)
		now := recordedTime(t, want["LastUpdatedTime"])
		start, inputURL := starts[want["ExecutionId"].Text()], ""
		if start == nil {
			counts["from the row"]++
			row, err := DecodeInstanceRow(rec.Raw)
			if err != nil {
				t.Fatal(err)
			}
			s := row.State
			start = &history.ExecutionStarted{
				Header:   history.NewHeader(s.CreatedAt),
				Instance: s.Instance, Name: s.Name, Version: s.Version, Tags: s.Tags,
				ScheduledStart: s.ScheduledAt, Generation: row.Generation,
			}
			inputURL = *s.Input
		}
		e := EncodeNewInstance(start, rec.Hub, inputURL, now)
		if blob := want["InputBlobName"].Text(); blob != "" {
			counts["with a blob"]++
			if diff := cmp.Diff(e.LargeColumns(), []string{"Input"}); diff != "" {
				t.Errorf("%s: large columns (-got +want):\n%s", &rec, diff)
			}
			e.Offload("Input", blob)
		}
		got := recordings.Columns(t, e.JSON())
		if got[FirstCreatedColumn] != want["CreatedTime"] {
			t.Errorf("%s: %s is %v, want %v", &rec, FirstCreatedColumn, got[FirstCreatedColumn], want["CreatedTime"])
		}
		delete(got, FirstCreatedColumn) // .NET does not have this column
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", &rec, diff)
		}
	}
	want := map[string]int{"POST": 43, "PUT": 2, "from the row": 3, "with a blob": 1}
	if diff := cmp.Diff(counts, want); diff != "" {
		t.Errorf("rows (-got +want):\n%s", diff)
	}
}

// Every recorded merge into an instances table is encoded again: merges of checkpoints from the history
// rows that were written before, merges of a termination from the message. Only the local time and the
// custom status come from the recorded merge.
func TestInstanceMerges_AreEncodedAsByDotNet(t *testing.T) {
	counts := map[string]int{}
	written := map[string][]recordings.Row{} // history rows since the last merge, by hub and partition key
	for _, rec := range recordings.Rows(t) {
		key := rec.Hub + "/" + rec.Column(t, "PartitionKey")
		if rec.Table == "History" && strings.HasPrefix(rec.Verb, "batch ") {
			if rec.Column(t, "RowKey") != SentinelRowKey {
				written[key] = append(written[key], rec)
			}
			continue
		}
		if rec.Table != "Instances" || rec.Verb != "PATCH" {
			continue
		}
		want := recordings.Columns(t, rec.Raw)
		var e Row
		switch status := want["RuntimeStatus"].Text(); {
		case want["CustomStatus"].Value != nil:
			counts["checkpoint"]++
			c := replayedCheckpoint(t, &rec, written[key])
			delete(written, key)
			for _, ev := range c.Events {
				counts[ev.Type().String()]++
			}
			e = EncodeInstanceCheckpoint(c)
		case status == history.Terminated.String():
			counts["terminated before start"]++
			e = EncodeEndedBeforeStart(UnescapeKey(want["PartitionKey"].Text()), history.Terminated, new(want["Output"].Text()),
				recordedTime(t, want["LastUpdatedTime"]), recordedTime(t, want["CompletedTime"]))
		case status == history.Pending.String():
			counts["rewound"]++ // tested in package instances
			continue
		}
		// The only difference is an Output that .NET would interpret as a reference.
		if output := want["Output"]; looksLikeURI(output.Text()) && !strings.HasPrefix(output.Text(), "http://127.0.0.1:") {
			counts["like a URI"]++
			want["Output"] = recordings.EDMValue{Type: output.Type, Value: output.Text() + " "}
		}
		if diff := cmp.Diff(recordings.Columns(t, e.JSON()), want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", &rec, diff)
		}
	}
	want := map[string]int{
		"checkpoint":              106,
		"terminated before start": 2,
		"rewound":                 4,
		"like a URI":              1,

		"ExecutionStarted":                  54,
		"ExecutionCompleted":                43,
		"ExecutionTerminated":               3,
		"ExecutionSuspended":                2,
		"ExecutionResumed":                  2,
		"TaskScheduled":                     30,
		"TaskCompleted":                     16,
		"TaskFailed":                        10,
		"SubOrchestrationInstanceCreated":   4,
		"SubOrchestrationInstanceCompleted": 2,
		"SubOrchestrationInstanceFailed":    4,
		"TimerCreated":                      6,
		"TimerFired":                        6,
		"OrchestratorStarted":               106,
		"OrchestratorCompleted":             112,
		"EventSent":                         8,
		"EventRaised":                       5,
		"GenericEvent":                      2,
	}
	if diff := cmp.Diff(counts, want); diff != "" {
		t.Errorf("merges, and the events of checkpoints (-got +want):\n%s", diff)
	}
}

// replayedCheckpoint returns the checkpoint that wrote rows and then merge.
func replayedCheckpoint(t *testing.T, merge *recordings.Row, rows []recordings.Row) InstanceCheckpoint {
	t.Helper()
	want := recordings.Columns(t, merge.Raw)
	c := InstanceCheckpoint{
		Instance: history.OrchestrationInstance{
			InstanceID:  UnescapeKey(want["PartitionKey"].Text()),
			ExecutionID: want["ExecutionId"].Text(),
		},
		TaskHub: merge.Hub,
		BlobURL: func(name string) string {
			container := "http://127.0.0.1:31710/devstoreaccount1/" + NewHubNames(merge.Hub).LargeMessageContainer()
			return BlobURL(container, name)
		},
		Now: recordedTime(t, want["CompletedTime"]),
	}
	if s := want["CustomStatus"].Text(); s != JSONNull {
		c.CustomStatus = &s
	}
	if len(rows) == 0 {
		t.Fatalf("%s: no history was written before", merge)
	}
	for _, rec := range rows {
		row, err := DecodeHistoryRow(rec.Raw)
		if err != nil {
			t.Fatal(err)
		}
		blobs := row.Blobs()
		for _, b := range blobs {
			row.Resolve(b.Column, largeText)
		}
		ev, err := row.Event()
		if err != nil {
			t.Fatal(err)
		}
		if row.ExecutionID != c.Instance.ExecutionID {
			t.Errorf("%s: history row of execution %s", merge, row.ExecutionID)
		}
		e := EncodeHistoryRow(ev, c.Instance.InstanceID, 0, row.ExecutionID)
		for _, b := range blobs {
			e.Offload(b.Column, b.Blob)
		}
		c.Events = append(c.Events, ev)
		c.Rows = append(c.Rows, e)
	}
	return c
}

// Every row that was read from an instances table is decoded. Encoding the result again must give the
// same columns.
func TestInstanceRows_AreDecodedCompletely(t *testing.T) {
	var count int
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "Instances" || rec.Verb != "GET" {
			continue
		}
		count++
		row, err := DecodeInstanceRow(rec.Raw)
		if err != nil {
			t.Errorf("%s: %v", &rec, err)
			continue
		}
		if !strings.HasPrefix(row.ETag, "W/") {
			t.Errorf("%s: ETag %q", &rec, row.ETag)
		}
		// Encode the result as a row again.
		s := row.State
		e := Row{PartitionKey: EscapeKey(s.Instance.InstanceID)}
		want := recordings.Columns(t, rec.Raw)
		if want["ExecutionId"].Value != nil {
			e.SetString("ExecutionId", s.Instance.ExecutionID)
		}
		e.SetString("Name", s.Name)
		e.SetString("Version", s.Version)
		e.setOptional("Input", s.Input)
		e.setOptional("Output", s.Output)
		if want["CustomStatus"].Value != nil {
			e.SetString("CustomStatus", JSONNull)
			if s.CustomStatus != nil {
				e.setOptional("CustomStatus", s.CustomStatus)
			}
		}
		e.SetOptionalTime("CreatedTime", s.CreatedAt)
		e.SetOptionalTime("LastUpdatedTime", s.LastUpdatedAt)
		e.SetOptionalTime("CompletedTime", s.CompletedAt)
		e.SetOptionalTime("ScheduledStartTime", s.ScheduledAt)
		e.SetString("RuntimeStatus", s.Status.String())
		if row.Generation != nil {
			e.SetInt("Generation", s.Generation)
		}
		e.SetString("Tags", TagsColumn(s.Tags))
		if row.InputBlob != "" {
			e.SetString("InputBlobName", row.InputBlob)
		}
		delete(want, "TaskHubName") // not read
		if diff := cmp.Diff(recordings.Columns(t, e.JSON()), want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", &rec, diff)
		}
	}
	recordings.WantCount(t, "rows", count, 144)
}

// The blob URLs that .NET wrote into instance rows are recognized, and BlobURL returns them for the
// blobs' names.
func TestBlobURLs_MatchDotNet(t *testing.T) {
	var messages, columns int
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "Instances" {
			continue
		}
		container := "http://127.0.0.1:31710/devstoreaccount1/" + NewHubNames(rec.Hub).LargeMessageContainer()
		for _, column := range []string{"Input", "Output"} {
			value := rec.Column(t, column)
			if !strings.HasPrefix(value, "http:") {
				continue
			}
			name, ok := BlobNameFromURL(container, value)
			if !ok {
				t.Errorf("%s: %s %q is not recognized as a blob URL", &rec, column, value)
				continue
			}
			if got := BlobURL(container, name); got != value {
				t.Errorf("%s: BlobURL(%q) = %q, want %q", &rec, name, got, value)
			}
			if IsStartMessageBlob(name) {
				messages++
			} else {
				columns++
			}
		}
	}
	recordings.WantCount(t, "addresses of start messages", messages, 7)
	recordings.WantCount(t, "addresses of columns", columns, 12)
}
