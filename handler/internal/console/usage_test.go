package console

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func TestUsage_CoversTheLastMinute(t *testing.T) {
	t.Parallel()
	var log usageLog
	began := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	// Ten requests per second, one of them with an error, and an idle table.
	at := func(after time.Duration) []provider.Usage {
		n := int64(after / time.Second)
		return []provider.Usage{{Part: "queue", Requests: 10 * n, Errors: n}, {Part: "table", Requests: 7}}
	}
	for _, tt := range []struct {
		after, over time.Duration
		requests    int64
	}{
		{100 * time.Second, 100 * time.Second, 1000}, // compared with the start
		{101 * time.Second, 101 * time.Second, 1010},
		{105 * time.Second, 105 * time.Second, 1050},
		{159 * time.Second, 159 * time.Second, 1590}, // 59 s after the first look
		{160 * time.Second, time.Minute, 600},
		{166 * time.Second, 61 * time.Second, 610},          // the look at 101 s was too soon after the previous one and was not kept
		{time.Hour, 57*time.Minute + 14*time.Second, 34340}, // no look in between
		{time.Hour + time.Minute, time.Minute, 600},
	} {
		got := log.look(at(tt.after), began.Add(tt.after), began)
		queue, table := got.Parts[0], got.Parts[1]
		if got.For != tt.over || queue.Lately.Requests != tt.requests || queue.Lately.Errors != tt.requests/10 || queue.RequestRate() != "10.0" || queue.ErrorRate() != "1.0" {
			t.Errorf("after %v: %d requests and %d errors in %v: %s and %s a second", tt.after, queue.Lately.Requests, queue.Lately.Errors, got.For, queue.RequestRate(), queue.ErrorRate())
		}
		if queue.Requests != 10*int64(tt.after/time.Second) || table.Requests != 7 {
			t.Errorf("after %v: %d and %d in all", tt.after, queue.Requests, table.Requests)
		}
	}
	if n := len(log.looks); n > 14 {
		t.Errorf("%d looks are kept", n)
	}
	// The hub was opened again and counts from zero.
	if got := log.look(at(0), began.Add(2*time.Hour), began); got.Parts[0].Lately.Requests != 0 {
		t.Errorf("after the hub was opened again: %+v", got)
	}
}

func TestUsage_KeepsFewSamples(t *testing.T) {
	t.Parallel()
	var log usageLog
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	for range 10_000 {
		now = now.Add(100 * time.Millisecond)
		log.look([]provider.Usage{{Part: "file", Errors: -1}}, now, now)
	}
	if n := len(log.looks); n != 13 {
		t.Errorf("%d looks are kept, want one each 5 s of a minute", n)
	}
}

func TestHubNow_WarnsOfStorageErrors(t *testing.T) {
	t.Parallel()
	now := hubNow{Usage: &usage{For: 50 * time.Second, Parts: []partUsage{
		{Usage: provider.Usage{Part: "queue", Requests: 90, Errors: 9}, Lately: provider.Usage{Requests: 50}},
		{Usage: provider.Usage{Part: "table", Requests: 90, Errors: 9}, Lately: provider.Usage{Requests: 50, Errors: 3}},
		{Usage: provider.Usage{Part: "file", Requests: 90, Errors: -1}, Lately: provider.Usage{Requests: 50, Errors: -1}},
	}}}
	if d := cmp.Diff([]string{"3 of 50 requests to the storage's table service failed within 50s."}, now.Warnings()); d != "" {
		t.Errorf("the warnings (-want +got): %s", d)
	}
}
