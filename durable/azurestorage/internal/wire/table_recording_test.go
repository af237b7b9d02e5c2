package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/google/go-cmp/cmp"
)

// largeText exceeds the maximum size of a column.
var largeText = strings.Repeat("z", MaxColumnUnits+1)

// reencodeHistoryRow decodes a row and encodes the result again. It replaces the values of large columns
// by largeText.
func reencodeHistoryRow(t *testing.T, raw []byte) (Row, error) {
	t.Helper()
	row, err := DecodeHistoryRow(raw)
	if err != nil {
		return Row{}, err
	}
	properties := recordings.Columns(t, raw)
	partitionKey := properties["PartitionKey"].Text()
	if row.IsSentinel() {
		complete, _ := properties["IsCheckpointComplete"].Value.(bool)
		at, err := eventjson.ParseTime(properties["CheckpointCompletedTimestamp"].Text())
		if err != nil {
			return Row{}, err
		}
		return EncodeSentinel(UnescapeKey(partitionKey), row.ExecutionID, complete, at), nil
	}
	blobs := row.Blobs()
	for _, b := range blobs {
		row.Resolve(b.Column, largeText)
	}
	ev, err := row.Event()
	if err != nil {
		return Row{}, err
	}
	e := EncodeHistoryRow(ev, UnescapeKey(partitionKey), 0, row.ExecutionID)
	e.RowKey = row.RowKey
	large := e.LargeColumns()
	if len(large) != len(blobs) {
		t.Errorf("large columns %q, want those of %+v", large, blobs)
	}
	for _, b := range blobs {
		e.Offload(b.Column, b.Blob)
	}
	return e, nil
}

// Every recorded row of a history table is decoded and encoded again. The result must have the same
// columns, types and values.
func TestHistoryRows_AreEncodedAsByDotNet(t *testing.T) {
	counts := map[string]int{}
	var sentinels, rewound, large int
	events := map[history.EventType]int{}
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "History" {
			continue
		}
		counts[rec.Verb]++
		want := recordings.Columns(t, rec.Raw)
		if len(want) <= 2 { // a purge reads only keys
			counts["keys only"]++
			continue
		}
		e, err := reencodeHistoryRow(t, rec.Raw)
		if err != nil {
			t.Errorf("%s: %v", &rec, err)
			continue
		}
		got := recordings.Columns(t, e.JSON())
		if eventType := want["EventType"].Text(); eventType == "" {
			sentinels++
		} else {
			known, _ := history.ParseEventType(eventType)
			events[known]++
		}
		// Rewind edits rows in place; its additions belong to no event.
		if reason := want["Reason"].Text(); strings.HasPrefix(reason, "Rewound: ") {
			rewound++
			for name := range want {
				if _, ok := got[name]; !ok {
					delete(want, name)
				}
			}
		}
		if strings.Contains(string(rec.Raw), `BlobName":"`) {
			large++
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", &rec, diff)
		}
	}
	wantCounts := map[string]int{"batch PUT": 415, "batch POST": 42, "batch PATCH": 64, "PUT": 12, "GET": 765, "keys only": 302}
	if diff := cmp.Diff(counts, wantCounts); diff != "" {
		t.Errorf("rows by verb (-got +want):\n%s", diff)
	}
	recordings.WantCount(t, "sentinels", sentinels, 170)
	recordings.WantCount(t, "rewound rows", rewound, 36)
	recordings.WantCount(t, "rows with a blob", large, 10)
	wantEvents := map[history.EventType]int{
		history.TypeExecutionStarted:                  116,
		history.TypeExecutionCompleted:                49,
		history.TypeExecutionTerminated:               3,
		history.TypeExecutionSuspended:                6,
		history.TypeExecutionResumed:                  4,
		history.TypeTaskScheduled:                     71,
		history.TypeTaskCompleted:                     19,
		history.TypeTaskFailed:                        20,
		history.TypeSubOrchestrationInstanceCreated:   16,
		history.TypeSubOrchestrationInstanceCompleted: 2,
		history.TypeSubOrchestrationInstanceFailed:    8,
		history.TypeTimerCreated:                      16,
		history.TypeTimerFired:                        10,
		history.TypeOrchestratorStarted:               212,
		history.TypeOrchestratorCompleted:             215,
		history.TypeEventSent:                         17,
		history.TypeEventRaised:                       8,
		history.TypeGenericEvent:                      34,
	}
	if diff := cmp.Diff(events, wantEvents); diff != "" {
		t.Errorf("rows by type (-got +want):\n%s", diff)
	}
}

// EncodeHistoryRow gives the rows of a batch consecutive row keys.
func TestHistoryRowKey_IsTheOrdinalInSixteenHexDigits(t *testing.T) {
	for ordinal, want := range map[int]string{
		0: "0000000000000000", 10: "000000000000000A", 255: "00000000000000FF", 1 << 40: "0000010000000000",
	} {
		if got := HistoryRowKey(ordinal); got != want {
			t.Errorf("row key of %d is %q, want %q", ordinal, got, want)
		}
	}
}

// Every row of a partitions table is decoded and encoded again.
func TestPartitionRows_AreEncodedAsByDotNet(t *testing.T) {
	counts := map[string]int{}
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "Partitions" {
			continue
		}
		counts[rec.Verb]++
		row, err := DecodePartitionRow(rec.Raw)
		if err != nil {
			t.Errorf("%s: %v", &rec, err)
			continue
		}
		if rec.Verb == "GET" && !strings.HasPrefix(row.ETag, "W/") {
			t.Errorf("%s: ETag %q", &rec, row.ETag)
		}
		e := row.Row()
		if diff := cmp.Diff(recordings.Columns(t, e.JSON()), recordings.Columns(t, rec.Raw)); diff != "" {
			t.Errorf("%s (-got +want):\n%s", &rec, diff)
		}
	}
	want := map[string]int{"POST": 13, "PUT": 63, "GET": 84}
	if diff := cmp.Diff(counts, want); diff != "" {
		t.Errorf("rows by verb (-got +want):\n%s", diff)
	}
}

// A TimerFired contains the due time of its timer. It identifies the timer if several have the same ID.
func TestTimerFired_HasTheDueTimeOfItsTimer(t *testing.T) {
	due, seen := map[string]time.Time{}, map[string]bool{}
	for _, rec := range recordings.Rows(t) {
		if rec.Table != "History" || len(recordings.Columns(t, rec.Raw)) <= 2 {
			continue
		}
		row, err := DecodeHistoryRow(rec.Raw)
		if err != nil || row.IsSentinel() || len(row.Blobs()) > 0 {
			continue
		}
		ev, err := row.Event()
		if err != nil {
			t.Fatal(err)
		}
		key := func(id int) string {
			return fmt.Sprint(recordings.Columns(t, rec.Raw)["PartitionKey"].Text(), " ", row.ExecutionID, " ", id)
		}
		switch ev := ev.(type) {
		case *history.TimerCreated:
			due[key(ev.EventID)] = ev.FireAt
		case *history.TimerFired:
			seen[key(ev.TimerID)] = true
			if want, ok := due[key(ev.TimerID)]; !ok || !want.Equal(ev.FireAt) {
				t.Errorf("%s: timer %d was due at %v, fired as due at %v", &rec, ev.TimerID, want, ev.FireAt)
			}
		}
	}
	recordings.WantCount(t, "timers that fired", len(seen), 6)
}
