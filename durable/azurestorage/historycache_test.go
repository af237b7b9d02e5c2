package azurestorage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// countHistoryReads opens a hub. reads returns the number of history reads.
func countHistoryReads(t testing.TB, cfg Config) (h *TaskHub, reads func() int) {
	counter := newCounter(t)
	cfg.Transport = counter
	h = openHub(t, cfg)
	return h, func() int {
		return counter.Total(func(c azuritetest.Call) bool {
			return c.Name == "QueryEntities" && c.Target == h.instances.HistoryTable.Name
		})
	}
}

func TestHistoryCache_NeedsOneReadPerInstance(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int]int{0: 1, -1: 4} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				cfg := testConfig(t)
				cfg.HistoryCacheBytes = bytes
				h, reads := countHistoryReads(t, cfg)
				runHub(t, h)
				mustStart(t, h, "seq", "e1", `1`)
				runHello(t, h, "Tokyo", "Seattle", "London")
				if n := reads(); n > want {
					t.Errorf("the history was read %d times, want %d", n, want)
				}
				if _, ok := h.instances.CachedHistories.Take("seq"); ok {
					t.Error("the history of an ended instance is still cached")
				}
			})
		})
	}
}

// A cached history never hides the changes of another worker. Messages are not discarded or held
// back because of an outdated history, and a decision on an outdated history is not committed.
func TestHistoryCache_IsCheckedWhenAnotherWorkerMayHaveAdvancedTheInstance(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "seq", "e1", `1`)
		commitActivity(t, mustNext(t, h), 0, `["Tokyo"]`)

		// Another worker consumes the first result and schedules the second activity.
		stored, err := h.instances.Load(t.Context(), "seq", "e1")
		if err != nil {
			t.Fatal(err)
		}
		instance := history.OrchestrationInstance{InstanceID: "seq", ExecutionID: "e1"}
		done := &history.TaskCompleted{Header: header(history.NoEventID), TaskScheduledID: 0, Result: new(`"Hello"`)}
		second := &history.TaskScheduled{Header: header(1), Name: "Hello"}
		events := episode([]provider.TaskMessage{{Event: done, Target: instance}}, second)
		rows, err := h.instances.Histories.Encode(t.Context(), "seq", "e1", len(stored.Events), events)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.instances.Histories.Append(t.Context(), instance, rows, stored.ETag, nil); err != nil {
			t.Fatal(err)
		}

		// The second result is out of order in the cached history, and in order in
		// the stored one.
		if err := h.Send(t.Context(), provider.TaskMessage{Target: instance, Event: &history.TaskCompleted{
			Header: header(history.NoEventID), TaskScheduledID: 1, Result: new(`"Hello again"`),
		}}); err != nil {
			t.Fatal(err)
		}
		item := mustNext(t, h)
		if len(item.History) != 8 {
			t.Errorf("dispatched with %d events, want the 8 stored ones", len(item.History))
		}
		commitEnd(t, item, 2, `"done"`)
	})
}

func TestHistoryCache_RejectsACommitToAnOutdatedHistory(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]bool{"with events": true, "without events": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				h := openHub(t, testConfig(t))
				runHub(t, h)
				mustStart(t, h, "seq", "e1", `1`)
				commitActivity(t, mustNext(t, h), 0, `["Tokyo"]`)
				instance := history.OrchestrationInstance{InstanceID: "seq", ExecutionID: "e1"}
				stored, err := h.instances.Load(t.Context(), "seq", "e1")
				if err != nil {
					t.Fatal(err)
				}
				raise := func(name string) provider.TaskMessage {
					return provider.TaskMessage{Target: instance, Event: &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name}}
				}
				rows, err := h.instances.Histories.Encode(t.Context(), "seq", "e1", len(stored.Events), episode([]provider.TaskMessage{raise("other")}))
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := h.instances.Histories.Append(t.Context(), instance, rows, stored.ETag, nil); err != nil {
					t.Fatal(err)
				}
				if err := h.Send(t.Context(), raise("mine")); err != nil {
					t.Fatal(err)
				}
				item := mustNext(t, h)
				if len(item.History) != 4 {
					t.Fatalf("dispatched with %d events, want the 4 cached ones", len(item.History))
				}
				cp := &provider.Checkpoint{Instance: item.Instance}
				if events {
					cp.NewEvents = episode(item.Messages)
				}
				if err := item.Session.Commit(t.Context(), cp); !errors.Is(err, provider.ErrSessionLost) {
					t.Errorf("error %v, want ErrSessionLost", err)
				}
				if err := errors.Join(item.Session.Abandon(t.Context(), errLost), item.Session.Release(t.Context())); err != nil {
					t.Fatal(err)
				}
				if item = mustNext(t, h); len(item.History) != 7 {
					t.Errorf("dispatched again with %d events, want the 7 stored ones", len(item.History))
				}
				commitEnd(t, item, 1, `"done"`)
			})
		})
	}
}
