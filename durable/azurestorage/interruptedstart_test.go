package azurestorage

import (
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// mustInterrupt inserts the row of a direct start and does nothing else.
func mustInterrupt(t *testing.T, h *TaskHub, id string) {
	t.Helper()
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.instances.Rows.CreateDirect(t.Context(), startMessage(id, "e1", `1`).Event.(*history.ExecutionStarted)); err != nil {
		t.Fatal(err)
	}
}

// The filter selects only rows of direct starts. Rows without the column do not match.
func TestInterruptedStart_IsFoundAmongPendingInstances(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	for _, id := range []string{"direct", "rewound", "begun"} {
		mustInterrupt(t, h, id)
	}
	mustStart(t, h, "sent", "e1", `1`)
	scheduled := startMessage("scheduled", "e1", `1`)
	scheduled.Event.(*history.ExecutionStarted).ScheduledStart = time.Now().Add(time.Hour)
	if err := h.StartInstance(t.Context(), scheduled, nil); err != nil {
		t.Fatal(err)
	}
	mustMerge(t, h, "begun", "", history.Running)
	for range 2 { // twice, because only an ended instance can be rewound
		mustMerge(t, h, "rewound", "", history.Failed)
	}
	if err := h.instances.Rows.MarkRewound(t.Context(), history.OrchestrationInstance{InstanceID: "rewound", ExecutionID: "e1"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		before time.Duration
		direct bool
		want   []string // a star marks rows that are unchanged since the insert
	}{
		{time.Minute, true, []string{"direct*", "rewound"}},
		{time.Minute, false, []string{"direct*", "rewound", "scheduled", "sent"}},
		{-time.Minute, true, nil},
	} {
		var got []string
		err := h.instances.Rows.EachPending(t.Context(), instances.PendingQuery{Before: time.Now().Add(tt.before), Direct: tt.direct}, func(row *wire.InstanceRow) error {
			name := row.State.Instance.InstanceID
			if row.AwaitsDirectStart() {
				name += "*"
			}
			got = append(got, name)
			return nil
		})
		if slices.Sort(got); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("before %v, direct %v: %q, %v; want %q", tt.before, tt.direct, got, err, tt.want)
		}
	}
}

// A worker resends an interrupted start even if its queue has messages that it has not received. It
// does not resend a start that it holds in memory.
func TestInterruptedStart_IsResentWhileTheQueueIsBusy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "warm-up")
		mustInterrupt(t, h, "lost")
		done := starting(t, h, startMessage("held", "e1", `1`))
		time.Sleep(interruptedAfter)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h.partitions[0].Announce() // as if a poll had not emptied the queue
		if err := h.overdue.scan(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if !logged(h, "without a start message", "instanceId=lost") || logged(h, "without a start message", "instanceId=held") {
			t.Error("want the start of lost resent, and not the start of held")
		}
		for range 2 {
			commitEnd(t, mustNext(t, h), 0, `1`)
		}
		if got := runtimeStatus(t, h, "lost"); got != history.Completed {
			t.Errorf("status %v, want Completed", got)
		}
	})
}

// If the message of a direct start cannot be sent, the worker scans for its row soon.
func TestInterruptedStart_OfThisProcessIsResentSoon(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "warm-up")
		time.Sleep(2 * scanInterval) // the scans after the acquisition of the partition are over
		mustInterrupt(t, h, "lost")
		h.overdue.rescan.Send()
		time.Sleep(90 * time.Second)
		if item := mustNext(t, h); item.Instance.InstanceID != "lost" {
			t.Errorf("dispatched %v, want lost", item.Instance)
		}
	})
}

func TestPlace_ReportsAMissingStartMessage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		mustStart(t, h, "sent", "e1", `1`)
		mustInterrupt(t, h, "lost")
		mustStart(t, h, "cleared", "e1", `1`)
		missing := func(id string) bool {
			place, err := h.QueuePosition(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return place.StartMissing
		}
		if missing("lost") || missing("sent") {
			t.Error("a start in flight is reported as missing")
		}
		time.Sleep(interruptedAfter)
		if !missing("lost") || missing("sent") {
			t.Errorf("lost: %v, sent: %v; want true and false", missing("lost"), missing("sent"))
		}
		if _, err := h.controlQueues[0].Client.ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if !missing("cleared") {
			t.Error("the start in a cleared queue is not reported as missing")
		}
		if state, err := h.Instance(t.Context(), "lost", provider.Fetch{}); err != nil || state.Status != history.Pending {
			t.Error(store.Value(state), err)
		}
	})
}
