package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// large is a payload that is stored in blobs, both in messages and in columns.
var large = `"` + strings.Repeat("x", 70_000) + `"`

// endLarge runs an instance with a large input and a large output to its end.
func endLarge(t testing.TB, h *TaskHub, id string) {
	t.Helper()
	mustStart(t, h, id, id+"-e", large)
	commitEnd(t, mustNext(t, h), 0, large)
}

// leftOf returns the stored rows and blob names of an instance.
func leftOf(t testing.TB, h *TaskHub, id string) []string {
	t.Helper()
	var left []string
	for _, table := range []*store.Table{h.instances.HistoryTable, h.instances.RowTable} {
		for _, raw := range storedRows(t, table, id) {
			left = append(left, string(raw))
		}
	}
	for _, name := range blobNames(t, h) {
		rest, isMessage := strings.CutPrefix(name, id+"/message-")
		if !isMessage {
			rest, isMessage = strings.CutPrefix(name, wire.EscapeKey(id)+"/history-")
		}
		if isMessage && !strings.Contains(rest, "/") {
			left = append(left, name)
		}
	}
	return left
}

// .NET deletes the blobs of all instances whose IDs start with the same text, and leaves the blobs
// of escaped IDs.
func TestPurge_DeletesOnlyOneInstance(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		ids := []string{"par", "parf", "par/x", "par^0x", "a#c?\t", "it's"}
		want := map[string]int{}
		for _, id := range ids {
			endLarge(t, h, id)
			want[id] = len(leftOf(t, h, id))
			if want[id] < 8 {
				t.Fatalf("%q has %d rows and blobs, want 6 rows and some blobs", id, want[id])
			}
		}
		for i, id := range ids {
			if err := h.Purge(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
			if left := leftOf(t, h, id); len(left) > 0 {
				t.Errorf("still stored of %q: %q", id, left)
			}
			for _, other := range ids[i+1:] {
				if n := len(leftOf(t, h, other)); n != want[other] {
					t.Errorf("purging %q left %d of the %d rows and blobs of %q", id, n, want[other], other)
				}
			}
			if _, err := h.Instance(t.Context(), id, provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
				t.Errorf("instance %q: %v, want ErrInstanceNotFound", id, err)
			}
			if err := h.Purge(t.Context(), id, nil); !errors.Is(err, provider.ErrInstanceNotFound) {
				t.Errorf("purging %q again: %v, want ErrInstanceNotFound", id, err)
			}
		}
		if names := blobNames(t, h); len(names) > 0 {
			t.Errorf("blobs are left: %q", names)
		}
	})
}

func TestPurge_DeletesHistoriesLargerThanATransaction(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	endLong(t, h, "long", `1`)
	// A shorter execution leaves rows of the longer one behind.
	mustStart(t, h, "long", "e2", `2`)
	commitEnd(t, mustNext(t, h), 0, `2`)
	if n := len(storedRows(t, h.instances.HistoryTable, "long")); n != 335 {
		t.Fatalf("%d rows, want the 334 events of the longer execution and the sentinel", n)
	}
	if err := h.Purge(t.Context(), "long", nil); err != nil {
		t.Fatal(err)
	}
	// The container for blobs does not exist yet, which is no error.
	if rows := storedRows(t, h.instances.HistoryTable, "long"); len(rows) > 0 || len(storedRows(t, h.instances.RowTable, "long")) > 0 {
		t.Errorf("still stored: %q and possibly the instance row", rows)
	}
	mustStart(t, h, "long", "e3", `3`)
	item := mustNext(t, h)
	if item.Instance.ExecutionID != "e3" || len(item.History) > 0 {
		t.Errorf("%v with %d events, want e3 without history", item.Instance, len(item.History))
	}
	commitEnd(t, item, 0, `3`)
}

// endLong runs an instance to its end whose history needs several transactions.
func endLong(t testing.TB, h *TaskHub, id, input string) {
	t.Helper()
	mustStart(t, h, id, id+"-e", input)
	item := mustNext(t, h)
	var decided []history.Event
	for i := range 330 {
		decided = append(decided, &history.TimerCreated{Header: header(i)})
	}
	decided = append(decided, &history.ExecutionCompleted{Header: header(330), Status: history.Completed})
	mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages, decided...)})
}

// If a purge is interrupted, the instance row still exists, and another purge completes the work.
// Until then the instance has ended: messages to it are discarded.
func TestPurge_CanBeInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	endLong := func(t testing.TB, h *TaskHub, id string) { endLong(t, h, id, large) }
	for name, end := range map[string]func(testing.TB, *TaskHub, string){"one transaction": endLarge, "several transactions": endLong} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) { mustTolerateInterruptedPurges(t, end) })
		})
	}
}

// mustTolerateInterruptedPurges interrupts the n-th request of a purge, for every n. end runs an instance
// to its end.
func mustTolerateInterruptedPurges(t *testing.T, end func(testing.TB, *TaskHub, string)) {
	t.Helper()
	cfg := testConfig(t)
	h := openHub(t, cfg)
	runHub(t, h)
	completed := false
	for n := int32(0); !completed; n++ {
		id := fmt.Sprint("i", n)
		end(t, h, id)
		var count atomic.Int32
		cut := newCounter(t)
		cut.Intercept = func(_ azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if count.Add(1) > n { // the process is dead
				return azuritetest.ErrorResponse(nil, http.StatusForbidden, "Dead"), nil
			}
			return next()
		}
		dyingCfg := cfg
		dyingCfg.Transport = cut
		dying := openHub(t, dyingCfg)
		dying.resources.created.Store(true)
		if completed = dying.Purge(t.Context(), id, nil) == nil; !completed {
			if rows := storedRows(t, h.instances.RowTable, id); len(rows) != 1 {
				t.Fatalf("interrupted after %d requests: %d instance rows, want 1", n, len(rows))
			}
			mustDiscardEvent(t, h, id)
			// .NET runs an execution again whose start is left without the sentinel.
			keys, err := h.instances.Histories.Versions(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) > 0 && keys[len(keys)-1].RowKey != wire.SentinelRowKey && keys[0].RowKey < fmt.Sprintf("%016x", 2) {
				t.Errorf("interrupted after %d requests: row %s is left without a sentinel", n, keys[0].RowKey)
			}
			if err := h.Purge(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
		}
		if left := leftOf(t, h, id); len(left) > 0 {
			t.Errorf("interrupted after %d requests: still stored: %q", n, left)
		}
		if n > 30 {
			t.Fatal("the purge makes more than 30 requests")
		}
	}
}

// mustDiscardEvent sends an event for any execution to an ended instance, and waits until the worker
// has discarded it.
func mustDiscardEvent(t *testing.T, h *TaskHub, id string) {
	t.Helper()
	if err := h.Send(t.Context(), provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: id},
		Event:  &history.EventRaised{Header: header(history.NoEventID), Name: "late"},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if item, err := h.NextOrchestration(ctx); err == nil {
		t.Fatalf("%s was delivered to %s with a history of %d events", eventTypes(item.Messages), id, len(item.History))
	}
	if n := messageCount(t, h.controlQueues[0]); n != 0 {
		t.Fatalf("%d messages are left, want 0", n)
	}
	if status := runtimeStatus(t, h, id); status != history.Completed {
		t.Fatalf("the status of %s is %s, want Completed", id, status)
	}
}

// A client reads an ended instance and purges it. The ID is started again before the n-th request
// of the purge, for every n. The new execution must stay.
func TestPurge_SparesANewExecution(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		requests := 0
		for n := 1; mustSpareWhatBegan(t, n); n++ {
			requests++
		}
		if requests < 10 {
			t.Errorf("the purge made %d requests, want 10 or more", requests)
		}
	})
}

// mustSpareWhatBegan starts an execution before the n-th request of a purge. It returns false if
// the purge has fewer requests.
func mustSpareWhatBegan(t *testing.T, n int) (began bool) {
	t.Helper()
	cfg := testConfig(t)
	worker := openHub(t, cfg)
	stop := runHub(t, worker)
	defer stop()
	mustStart(t, worker, "i", "e1", `1`)
	commitEnd(t, mustNext(t, worker), 0, `"done"`)
	seen, err := worker.Instance(t.Context(), "i", provider.Fetch{})
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	input := `"` + strings.Repeat("x", 70<<10) + `"` // stored in a blob
	transport := newCounter(t)
	transport.Intercept = func(_ azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if requests.Add(1) == int32(n) {
			began = true
			mustStart(t, worker, "i", "e2", input)
			item := mustNext(t, worker)
			mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		}
		return next()
	}
	cfg.Transport = transport
	err = openHub(t, cfg).Purge(t.Context(), "i", seen)
	if !began {
		return false
	}
	if !errors.Is(err, provider.ErrInstanceChanged) && (err == nil || !strings.Contains(err.Error(), "changed during the purge")) {
		t.Errorf("start before request %d: the purge returned %v, want ErrInstanceChanged", n, err)
	}
	stored, loadErr := worker.instances.Load(t.Context(), "i", "")
	if loadErr != nil || len(stored.Events) != 3 || stored.ExecutionID != "e2" || stored.Row == nil || stored.Row.State.Instance.ExecutionID != "e2" {
		t.Fatalf("start before request %d: stored of the second execution: %+v, %v", n, stored, loadErr)
	}
	if got := store.Value(stored.Events[1].(*history.ExecutionStarted).Input); got != input {
		t.Errorf("start before request %d: the input has %d bytes, want %d", n, len(got), len(input))
	}
	return true
}

// If the sentinel has changed since it was read, the purge deletes no row of the history, however
// long it is.
func TestPurge_DeletesNothingOfAChangedHistory(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := startMessage("i", "e", `1`)
	events := episode([]provider.TaskMessage{start})
	for len(events) < 2*store.MaxTransactionOperations {
		events = append(events, episode(nil)...)
	}
	etag := mustAppend(t, h, start.Target, 0, events, "")
	versions, err := h.instances.Histories.Versions(t.Context(), "i")
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, h, start.Target, len(events), episode(nil), etag)
	if err := h.instances.Histories.Remove(t.Context(), "i", versions); !store.IsConflict(err) {
		t.Errorf("the purge returned %v, want a conflict", err)
	}
	if got, want := len(storedRows(t, h.instances.HistoryTable, "i")), len(events)+2+1; got != want {
		t.Errorf("%d rows are left, want %d", got, want)
	}
}

func TestPurge_ToleratesMissingRows(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		endLarge(t, h, "i")
		keys, err := h.instances.Histories.Versions(t.Context(), "i")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.instances.HistoryTable.Remove(t.Context(), wire.Row{PartitionKey: "i", RowKey: keys[1].RowKey}); err != nil {
			t.Fatal(err)
		}
		never := keys[1]
		never.RowKey = "never"
		if err := h.instances.Histories.Remove(t.Context(), "i", append(keys, never)); err != nil {
			t.Error(err)
		}
		if left := storedRows(t, h.instances.HistoryTable, "i"); len(left) > 0 {
			t.Errorf("%d rows are left", len(left))
		}
	})
}

// The blob list is XML and cannot contain an ID with U+FFFF. The purge still deletes the rows, and
// other instances can be purged.
func TestPurge_DeletesTheRowsOfAnIDThatXMLCannotContain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		endLarge(t, h, "other") // listing blobs needs a container
		for _, id := range []string{"a\uFFFF", "a\uFFFEb"} {
			mustStart(t, h, id, id+"-e", `1`)
			commitEnd(t, mustNext(t, h), 0, `1`)
			if err := h.Purge(t.Context(), id, nil); err != nil {
				t.Errorf("purge %q: %v", id, err)
			}
			if left := leftOf(t, h, id); len(left) > 0 {
				t.Errorf("still stored of %q: %q", id, left)
			}
		}
		if err := h.Purge(t.Context(), "other", nil); err != nil {
			t.Error(err)
		}
	})
}

// If the list fails for another reason, the purge fails and keeps the row.
func TestPurge_OfAnOrdinaryIDFailsIfItsBlobsCannotBeListed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		h := openHub(t, cfg)
		runHub(t, h)
		endLarge(t, h, "i")
		refusing := newCounter(t)
		refusing.Intercept = func(_ azuritetest.Call, r *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if r.URL.Query().Get("comp") == "list" {
				return azuritetest.ErrorResponse(nil, http.StatusInternalServerError, "InternalError"), nil
			}
			return next()
		}
		cfg.Transport = refusing
		other := openHub(t, cfg)
		other.resources.created.Store(true)
		if err := other.Purge(t.Context(), "i", nil); store.StatusOf(err) != http.StatusInternalServerError {
			t.Errorf("the purge returned %v, want status 500", err)
		}
		if rows := storedRows(t, h.instances.RowTable, "i"); len(rows) != 1 {
			t.Errorf("%d instance rows are left, want 1", len(rows))
		}
	})
}

func TestInstances_ByName(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	for i, name := range []string{"It's", "Other", "It's"} {
		start := startMessage(fmt.Sprint("i", i), "e", `1`)
		start.Event.(*history.ExecutionStarted).Name = name
		if err := h.StartInstance(t.Context(), start, nil); err != nil {
			t.Fatal(err)
		}
	}
	page, err := h.Instances(t.Context(), provider.Query{Name: "It's"})
	if err != nil || len(page.Instances) != 2 || page.Instances[1].Instance.InstanceID != "i2" {
		t.Errorf("%+v, %v; want i0 and i2", page, err)
	}
}
