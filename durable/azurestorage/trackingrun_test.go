package azurestorage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// auditOf waits until the last record of an instance's audit has the status. It returns the event
// types of the records.
func auditOf(t *testing.T, h *TaskHub, id, status string) (kinds []string) {
	t.Helper()
	patience.Until(t, fmt.Sprintf("the audit of %q ends with %s", id, status), func() bool {
		page, err := h.Tracking(t.Context(), id, provider.TrackingQuery{})
		if err != nil {
			t.Fatal(err)
		}
		kinds = nil
		last := ""
		for i, r := range page.Records {
			if r.SequenceNumber != i {
				t.Fatalf("record %d of %q has the sequence number %d", i, id, r.SequenceNumber)
			}
			kinds = append(kinds, r.Event.Type().String())
			if s, ok := r.Event.(*history.HistoryState); ok {
				last = *s.State
			}
		}
		return last == fmt.Sprintf(`{"OrchestrationStatus":"%s"}`, status)
	})
	return kinds
}

func TestTracking_OnAzurite(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Tracking, cfg.AppLease.Disabled = true, true
	h := openHub(t, cfg)
	stop := runHub(t, h)
	if _, err := h.Instance(t.Context(), "nobody", provider.Fetch{}); err == nil {
		t.Fatal("an unknown instance was found")
	}
	// Messages that cannot be decoded or stored are held back and do not block others.
	for _, poison := range []string{
		"nonsense", `{"Rows":[]}`, `{"Rows":[{"PartitionKey":"p","RowKey":"` + strings.Repeat("k", 2000) + `"}]}`,
	} {
		if _, err := h.tracking.queue.Queue.Put(t.Context(), poison, 0, true); err != nil {
			t.Fatal(err)
		}
	}
	const id = "it's/an instance"
	mustStart(t, h, id, "e1", `"in"`)
	runHello(t, h, "Tokyo")
	want := []string{
		"OrchestratorStarted", "ExecutionStarted", "TaskScheduled", "OrchestratorCompleted", "HistoryState",
		"OrchestratorStarted", "TaskCompleted", "ExecutionCompleted", "OrchestratorCompleted", "HistoryState",
	}
	if got := auditOf(t, h, id, "Completed"); !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	// Sending the records again changes nothing.
	before := storedRows(t, h.tracking.queue.Table, id)
	if err := h.tracking.resend(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	mustStart(t, h, "other", "e2", `"in"`)
	commitEnd(t, mustNext(t, h), 0, `"out"`)
	auditOf(t, h, "other", "Completed")
	if after := storedRows(t, h.tracking.queue.Table, id); fmt.Sprintf("%s", after) != fmt.Sprintf("%s", before) {
		t.Errorf("the rows have changed to\n%s\nfrom\n%s", after, before)
	}
	// The audit outlives its instances until the hub is deleted.
	if err := h.Purge(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	if after := storedRows(t, h.tracking.queue.Table, id); len(after) != len(want) {
		t.Errorf("%d rows after the purge, want %d", len(after), len(want))
	}
	patience.Until(t, "the tracking queue has only the three messages that are held back", func() bool {
		return messageCount(t, h.tracking.queue.Queue) == 3
	})
	stop()
	if err := h.Delete(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := h.tracking.queue.Queue.Client.GetProperties(t.Context(), nil); !store.IsNotFound(err) {
		t.Errorf("the tracking queue of the deleted hub: %v, want not found", err)
	}
}

// The audit includes instances that were terminated before they started.
func TestTracking_IncludesInstancesTerminatedBeforeTheirStart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.Tracking = true
		h := openHub(t, cfg)
		runHub(t, h)
		start := startMessage("later", "e1", `"in"`)
		start.Event.(*history.ExecutionStarted).ScheduledStart = time.Now().Add(time.Hour)
		if err := h.StartInstance(t.Context(), start, nil); err != nil {
			t.Fatal(err)
		}
		err := h.Send(t.Context(), provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: "later"},
			Event:  &history.ExecutionTerminated{Header: history.NewHeader(time.Now()), Reason: new("no need")},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"ExecutionTerminated", "OrchestratorCompleted", "HistoryState"}
		if got := auditOf(t, h, "later", "Terminated"); !slices.Equal(got, want) {
			t.Errorf("recorded %q, want %q", got, want)
		}
	})
}

func TestTracking_FailsIfItWasNeverEnabled(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Tracking(t.Context(), "hello", provider.TrackingQuery{}); !errors.Is(err, provider.ErrNotSupported) {
		t.Errorf("error %v, want ErrNotSupported", err)
	}
}
