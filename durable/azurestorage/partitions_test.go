package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// owners returns how many partitions each worker owns.
func owners(t testing.TB, h *TaskHub) map[string]int {
	t.Helper()
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := leases.ReadRows(t.Context(), h.partitionsTable)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, r := range rows {
		counts[r.CurrentOwner]++
	}
	return counts
}

// heldCount returns the number of messages in flight in a hub.
func heldCount(h *TaskHub) int {
	counts := inuse.Counts{}
	h.held.Count(counts)
	return counts["held messages"]
}

// cutOff returns a transport that fails once cut is set, like the network of a worker that was
// disconnected or killed.
func cutOff(t testing.TB, cut *atomic.Bool) *azuritetest.Counter {
	c := newCounter(t)
	c.Intercept = func(_ azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if cut.Load() {
			return nil, errors.New("the test cut the network")
		}
		return next()
	}
	return c
}

func TestPartitions_AreBalancedAndTakenOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.PartitionCount = 4
		cfg.WorkerID = "one"
		first := openHub(t, cfg)
		var cut atomic.Bool
		cfg.WorkerID, cfg.Transport = "two", cutOff(t, &cut)
		second := openHub(t, cfg)

		ctx, cancel := context.WithCancel(t.Context())
		runHub(t, first)
		defer runEngine(ctx, first)()
		defer cancel()
		patience.Until(t, "the first worker owns all partitions", func() bool { return owners(t, first)["one"] == 4 })
		runHub(t, second)
		defer runEngine(ctx, second)()
		defer cancel()
		var ids []string
		start := func(n int) {
			for range n {
				id := fmt.Sprintf("seq-%d", len(ids))
				mustStart(t, first, id, "e"+id, `1`)
				ids = append(ids, id)
			}
		}
		start(10)
		patience.Until(t, "each worker owns two partitions", func() bool {
			o := owners(t, first)
			return o["one"] == 2 && o["two"] == 2
		})
		start(10)
		cut.Store(true)
		start(10)
		patience.Until(t, "the first worker owns all partitions again", func() bool { return owners(t, first)["one"] == 4 })
		awaitAll(t, first, ids)
		patience.Until(t, "the second worker has lost its partitions", func() bool {
			return logged(second, "partition lost: its lease ended before it could be renewed")
		})
	})
}

func TestPartitions_AreReleasedImmediatelyWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.PartitionCount = 2
		cfg.LeaseInterval, cfg.LeaseAcquireInterval = 30*time.Second, 300*time.Millisecond
		cfg.WorkerID = "first"
		first := openHub(t, cfg)
		stop := runHub(t, first)
		patience.Until(t, "the first worker owns all partitions", func() bool { return owners(t, first)["first"] == 2 })
		mustStart(t, first, "waiting", "e1", `1`) // received, but no caller asks for it
		patience.Until(t, "its message is in memory", func() bool { return heldCount(first) == 1 })
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > cfg.LeaseInterval/2 {
			t.Errorf("Run returned after %v", took)
		}
		if o := owners(t, first); o[""] != 2 {
			t.Errorf("owners after the stop: %v", o)
		}
		cfg.WorkerID = "next"
		next := openHub(t, cfg)
		runHub(t, next)
		item := mustNext(t, next)
		if took := time.Since(begin); item.Instance.InstanceID != "waiting" || took > cfg.LeaseInterval {
			t.Errorf("the next worker got %s after %v", item.Instance.InstanceID, took)
		}
		commitEnd(t, item, 0, `1`)
	})
}

func TestPartitions_WaitForTheirSessionsBeforeTheyAreReleased(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.PartitionCount = 2
		cfg.WorkerID = "one"
		first := openHub(t, cfg)
		runHub(t, first)
		items := map[string]*provider.OrchestrationWorkItem{}
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			mustStart(t, first, id, "e"+id, `1`)
			items[id] = mustNext(t, first)
		}
		cfg.WorkerID = "two"
		second := openHub(t, cfg)
		runHub(t, second)
		patience.Until(t, "the second worker has requested a partition", func() bool { return logged(second, "AttemptingToStealLease") })
		time.Sleep(time.Second)
		if o := owners(t, first); o["one"] != 2 {
			t.Fatalf("owners %v: a partition was released before its sessions ended", o)
		}
		for id, item := range items {
			commitEnd(t, item, 0, `"`+id+`"`)
		}
		patience.Until(t, "each worker owns one partition", func() bool {
			o := owners(t, first)
			return o["one"] == 1 && o["two"] == 1
		})
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			if state, err := first.Instance(t.Context(), id, provider.Fetch{}); err != nil || state.Status != history.Completed {
				t.Errorf("%s: %+v, %v", id, state, err)
			}
		}
	})
}

// A worker that is frozen until its lease has expired loses the race for the history. Its
// checkpoint is not committed.
func TestSession_OfAFrozenWorkerIsLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		var cut atomic.Bool
		cfg.WorkerID, cfg.Transport = "frozen", cutOff(t, &cut)
		frozen := openHub(t, cfg)
		cfg.WorkerID, cfg.Transport = "other", nil
		other := openHub(t, cfg)
		runHub(t, frozen)
		mustStart(t, other, "split", "e1", `1`)
		late := mustNext(t, frozen)
		cut.Store(true)
		runHub(t, other)
		commitActivity(t, mustNext(t, other), 0, `["by the other"]`)
		cut.Store(false)

		ev, msg := schedule(late, 0, `["by the frozen"]`)
		err := late.Session.Commit(t.Context(), &provider.Checkpoint{
			Instance: late.Instance, NewEvents: episode(late.Messages, ev), Activities: []provider.TaskMessage{msg},
		})
		if !errors.Is(err, provider.ErrSessionLost) {
			t.Fatalf("error %v, want ErrSessionLost", err)
		}
		if !logged(frozen, "SplitBrainDetected", "split") {
			t.Error("the split brain was not logged")
		}
		if err := errors.Join(late.Session.Abandon(t.Context(), err), late.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		events, err := other.History(t.Context(), "split")
		if err != nil || len(events) != 4 {
			t.Errorf("%d events, %v; want only the events of the other worker", len(events), err)
		}
		activity := mustActivity(t, other)
		if input := store.Value(activity.Task.Input); input != `["by the other"]` {
			t.Errorf("activity %s runs", input)
		}
		if n := messageCount(t, other.workItems); n != 1 {
			t.Errorf("%d work items, want none of the frozen worker", n)
		}
	})
}

// A session that has no reason to expect a conflict also retracts its messages when the history has
// changed.
func TestSession_RetractsItsMessagesWhenItIsLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "split", "e1", `1`)
		item := mustNext(t, h)
		other, err := h.instances.Histories.Encode(t.Context(), "split", "e1", 0, episode(item.Messages))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.instances.Histories.Append(t.Context(), item.Instance, other, "", nil); err != nil {
			t.Fatal(err)
		}
		ev, msg := schedule(item, 0, `["x"]`)
		err = item.Session.Commit(t.Context(), &provider.Checkpoint{
			Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg},
		})
		if !errors.Is(err, provider.ErrSessionLost) || !logged(h, "SplitBrainDetected") {
			t.Fatalf("error %v, want ErrSessionLost, logged", err)
		}
		if n := messageCount(t, h.workItems); n != 0 {
			t.Errorf("%d work items, want none", n)
		}
		if err := errors.Join(item.Session.Abandon(t.Context(), err), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTaskHub_StopsInTimeWithAStuckSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.DrainTimeout, cfg.LeaseInterval = 500*time.Millisecond, 20*time.Second
		h := openHub(t, cfg)
		stop := runHub(t, h)
		mustStart(t, h, "stuck", "e1", `1`)
		item := mustNext(t, h)
		begin := time.Now()
		stop()
		if took := time.Since(begin); took < cfg.DrainTimeout || took > cfg.DrainTimeout+releaseTime {
			t.Errorf("Run returned after %v", took)
		}
		if o := owners(t, h); o[""] != 1 {
			t.Errorf("owners after the stop: %v", o)
		}
		if !logged(h, "sessions in progress") {
			t.Error("the session that did not end was not logged")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := h.NextOrchestration(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the stop: %v", err)
		}
		commitEnd(t, item, 0, `1`) // it may still succeed if no other worker has advanced the instance
	})
}
