package azurestorage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestHistoryCache_ForgetsWhatWasUsedLongestAgo(t *testing.T) {
	t.Parallel()
	c := newHistoryCache(3 * (cacheOverhead + 100))
	put := func(id string, bytes int) { c.put(id, storedHistory{executionID: id, bytes: bytes}) }
	for _, id := range []string{"a", "b", "c"} {
		put(id, 100)
	}
	if _, ok := c.take("a"); !ok {
		t.Error("a is gone although there was room for three")
	}
	put("a", 100)
	put("d", 100)
	if _, ok := c.take("b"); ok {
		t.Error("b is still there although it was used longest ago")
	}
	put("huge", 10*cacheOverhead)
	for _, id := range []string{"c", "a", "d"} {
		if _, ok := c.take(id); !ok {
			t.Errorf("%s is gone", id)
		}
		if _, ok := c.take(id); ok {
			t.Errorf("%s is still there after it was taken", id)
		}
	}
	if _, ok := c.take("huge"); ok || c.size != 0 || c.order.Len() != 0 {
		t.Errorf("what is larger than the cache was kept: %d bytes, %d entries", c.size, c.order.Len())
	}
	put("x", 1)
	put("y", 1)
	put("x", 50)
	c.drop(func(id string) bool { return id == "y" })
	if c.size != cacheOverhead+50 || len(c.byID) != 1 {
		t.Errorf("%d bytes in %d entries; want only the newer x", c.size, len(c.byID))
	}
}

// Every type of event that the recordings hold comes out of the cache as it
// would come out of the table.
func TestHistoryCache_RemembersEventsAsTheyAreStored(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2*wire.MaxColumnUnits)
	at := time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)
	for _, ev := range []history.Event{
		&history.OrchestratorStarted{Header: history.NewHeader(at)},
		&history.TaskScheduled{Header: history.Header{EventID: 1, Timestamp: at}, Name: "A", Input: new("kept")},
		&history.TaskCompleted{Header: history.NewHeader(at), TaskScheduledID: 1, Result: &large},
		&history.TimerCreated{Header: history.Header{EventID: 2, Timestamp: at}, FireAt: at},
	} {
		row := wire.EncodeHistoryRow(ev, "i", 0, "e")
		whole, err := wire.DecodeHistoryRow(row.JSON())
		if err != nil {
			t.Fatal(err)
		}
		want, err := whole.Event()
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range row.LargeColumns() {
			row.Offload(column, "blob")
		}
		got, size, err := asStored(ev, &row)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-read +remembered):\n%s", ev.Type(), diff)
		}
		if done, ok := ev.(*history.TaskCompleted); ok && size < len(*done.Result) {
			t.Errorf("%d bytes, want at least those of the result", size)
		}
	}
}

// countHistoryReads runs h with a counter of the reads of its history.
func countHistoryReads(t testing.TB, cfg Config) (h *TaskHub, reads func() int) {
	counter := azuritetest.NewCounter(azuritetest.Start(t), nil)
	cfg.Transport = counter
	h = openHub(t, cfg)
	return h, func() int {
		return counter.Total(func(c azuritetest.Call) bool {
			return c.Name == "QueryEntities" && c.Target == h.historyTable.Name
		})
	}
}

func TestHistoryCache_SparesTheReadOfEveryEpisodeButTheFirst(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int]int{0: 1, -1: 4} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			cfg.HistoryCacheBytes = bytes
			h, reads := countHistoryReads(t, cfg)
			runHub(t, h)
			mustStart(t, h, "seq", "e1", `1`)
			runHello(t, h, "Tokyo", "Seattle", "London")
			if n := reads(); n > want {
				t.Errorf("the history was read %d times, want %d", n, want)
			}
			if _, ok := h.histories.take("seq"); ok {
				t.Error("a history that has ended is still remembered")
			}
		})
	}
}

// What another worker did in the meantime is not undone by what is remembered:
// a message is not discarded or held back by an old history, and what is decided
// on an old history does not count.
func TestHistoryCache_IsNotBelievedWhenAnotherWorkerWentOn(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	mustStart(t, h, "seq", "e1", `1`)
	commitActivity(t, mustNext(t, h), 0, `["Tokyo"]`)

	// Another worker takes the first result and schedules the second activity.
	stored, err := h.loadInstance(t.Context(), "seq", "e1")
	if err != nil {
		t.Fatal(err)
	}
	instance := history.OrchestrationInstance{InstanceID: "seq", ExecutionID: "e1"}
	done := &history.TaskCompleted{Header: header(history.NoEventID), TaskScheduledID: 0, Result: new(`"Hello"`)}
	second := &history.TaskScheduled{Header: header(1), Name: "Hello"}
	events := episode([]provider.TaskMessage{{Event: done, Target: instance}}, second)
	rows, err := h.offloadedRows(t.Context(), "seq", "e1", len(stored.events), events)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.appendHistory(t.Context(), instance, rows, stored.etag); err != nil {
		t.Fatal(err)
	}

	// The second result is out of order by what is remembered, and in order by
	// what is stored.
	if err := h.Send(t.Context(), provider.TaskMessage{Target: instance, Event: &history.TaskCompleted{
		Header: header(history.NoEventID), TaskScheduledID: 1, Result: new(`"Hello again"`),
	}}); err != nil {
		t.Fatal(err)
	}
	item := mustNext(t, h)
	if len(item.History) != 8 {
		t.Errorf("handed out with %d events, want the 8 that are stored", len(item.History))
	}
	commitEnd(t, item, 2, `"done"`)
}

func TestHistoryCache_DoesNotLetAnOldHistoryBeCommittedTo(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]bool{"with events": true, "without events": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openHub(t, testConfig(t))
			runHub(t, h)
			mustStart(t, h, "seq", "e1", `1`)
			commitActivity(t, mustNext(t, h), 0, `["Tokyo"]`)
			instance := history.OrchestrationInstance{InstanceID: "seq", ExecutionID: "e1"}
			stored, err := h.loadInstance(t.Context(), "seq", "e1")
			if err != nil {
				t.Fatal(err)
			}
			raise := func(name string) provider.TaskMessage {
				return provider.TaskMessage{Target: instance, Event: &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name}}
			}
			rows, err := h.offloadedRows(t.Context(), "seq", "e1", len(stored.events), episode([]provider.TaskMessage{raise("other")}))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := h.appendHistory(t.Context(), instance, rows, stored.etag); err != nil {
				t.Fatal(err)
			}
			if err := h.Send(t.Context(), raise("mine")); err != nil {
				t.Fatal(err)
			}
			item := mustNext(t, h)
			if len(item.History) != 4 {
				t.Fatalf("handed out with %d events, want the 4 that are remembered", len(item.History))
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
				t.Errorf("handed out again with %d events, want the 7 that are stored", len(item.History))
			}
			commitEnd(t, item, 1, `"done"`)
		})
	}
}
