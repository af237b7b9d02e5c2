package azurestorage

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A worker that was given up for dead may have its checkpoint written between two
// pages of another's reading. What was read then is neither what was before nor
// what is now, although it has the sentinel of now.
func TestLoadHistory_IsOfOneInstantThoughItHasSeveralPages(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	writer := openHub(t, cfg)
	mustStart(t, writer, "i", "e", `1`)
	start := startMessage("i", "e", `1`)
	first := episode([]provider.TaskMessage{start})
	etag := mustAppend(t, writer, start.Target, 0, first, "")

	pages := 0
	transport := azuritetest.NewCounter(azuritetest.Start(t), nil)
	transport.Intercept = func(_ azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, "History()") {
			return next()
		}
		query := req.URL.Query()
		query.Set("$top", "3") // the page ends where the sentinel comes next
		req.URL.RawQuery = query.Encode()
		if pages++; pages == 2 {
			mustAppend(t, writer, start.Target, len(first), episode(nil), etag)
		}
		return next()
	}
	cfg.Transport = transport
	reader := openHub(t, cfg)
	loaded, err := reader.loadHistory(t.Context(), "i", "e")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(loaded.events), len(first)+2; got != want {
		t.Errorf("%d events were read, with the sentinel %s; want %d", got, loaded.etag, want)
	}
	if pages < 2 {
		t.Errorf("the history had %d pages", pages)
	}
}

// The first checkpoint of a worker that was given up for dead may be on its way
// when the instance is terminated, of which nothing is known but that it is to
// start. It does not count any more.
func TestTerminate_OfAnInstanceThatHasNotStartedKeepsItFromStarting(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "i", "e", `1`)
	stored, err := h.loadInstance(t.Context(), "i", "")
	if err != nil {
		t.Fatal(err)
	}
	terminate := &history.ExecutionTerminated{Header: header(-1), Reason: new("enough")}
	if err := h.terminateUnstarted(t.Context(), "i", stored, terminate); err != nil {
		t.Fatal(err)
	}
	start := startMessage("i", "e", `1`)
	_, _, err = h.appendHistory(t.Context(), start.Target, mustRows(t, h, start.Target, 0, episode([]provider.TaskMessage{start})), "")
	if !errors.Is(err, provider.ErrSessionLost) {
		t.Errorf("the late checkpoint ended with %v, want %v", err, provider.ErrSessionLost)
	}
	if got := runtimeStatus(t, h, "i"); got != history.Terminated {
		t.Errorf("the instance is %v", got)
	}
	// The message that says so may come again, and be held against what is stored
	// now or what was stored before.
	if err := h.terminateUnstarted(t.Context(), "i", stored, terminate); !isConflict(err) {
		t.Errorf("terminating it with what was stored before ended with %v, want a conflict", err)
	}
	if stored, err = h.loadInstance(t.Context(), "i", ""); err != nil {
		t.Fatal(err)
	}
	if stored.etag == "" || stored.known.started {
		t.Errorf("the history has the sentinel %q and %d events", stored.etag, len(stored.events))
	}
	if err := h.terminateUnstarted(t.Context(), "i", stored, terminate); err != nil {
		t.Errorf("terminating it again ended with %v", err)
	}
}

// One that was terminated before it started can be replaced, as any that ended.
func TestTerminate_OfAnInstanceThatHasNotStartedLeavesTheIDFree(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "i", "e1", `1`)
	stored, err := h.loadInstance(t.Context(), "i", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.terminateUnstarted(t.Context(), "i", stored, &history.ExecutionTerminated{Header: header(-1)}); err != nil {
		t.Fatal(err)
	}
	mustStart(t, h, "i", "e2", `2`)
	runHub(t, h)
	deadline := time.Now().Add(time.Minute)
	for {
		item := mustNext(t, h)
		if item.Instance.ExecutionID == "e2" {
			cp := &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages, &history.ExecutionCompleted{Header: header(0), Status: history.Completed})}
			if err := item.Session.Commit(t.Context(), cp); err != nil {
				t.Fatal(err)
			}
		}
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := runtimeStatus(t, h, "i"); got == history.Completed {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the second execution is %v", got)
		}
	}
}

// A worker dies between the history that says that an instance is suspended and
// the row, and what it took is gone. The next checkpoint tells the row, although
// it is about something else: nobody resumes what does not seem to be suspended.
func TestInstanceRow_IsToldOfASuspensionThatItMissed(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	mustStart(t, h, "i", "e", `1`)
	item := mustNext(t, h)
	started := episode(item.Messages)
	if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: started}); err != nil {
		t.Fatal(err)
	}
	if err := item.Session.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, err := h.loadInstance(t.Context(), "i", "e")
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, h, item.Instance, len(started), episode(nil, &history.ExecutionSuspended{Header: header(-1)}), stored.etag)
	h.forget("i") // as if another worker had done that
	raised := provider.TaskMessage{Target: item.Instance, Event: &history.EventRaised{Header: header(-1), Name: "else"}}
	if err := h.Send(t.Context(), raised); err != nil {
		t.Fatal(err)
	}
	item = mustNext(t, h)
	if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)}); err != nil {
		t.Fatal(err)
	}
	if err := item.Session.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := runtimeStatus(t, h, "i"); got != history.Suspended {
		t.Errorf("the row says %v, want %v", got, history.Suspended)
	}
}

// The row is written, the answer is lost, and the worker is away for a while. When it
// comes back and writes the row again, it must not undo what the history says since:
// nobody resumes what does not seem to be suspended. What somebody wrote who knew less
// does not stay.
func TestInstanceRow_IsLeftAloneIfTheHistoryHasGoneOn(t *testing.T) {
	t.Parallel()
	status := func(t *testing.T, h *TaskHub, s history.RuntimeStatus) {
		row := entity{PartitionKey: escapeKey("i")}
		row.setString("RuntimeStatus", s.String())
		if _, err := h.instancesTable.merge(t.Context(), row, "*"); err != nil {
			t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		meanwhile func(t *testing.T, h *TaskHub)
		want      history.RuntimeStatus
		gone      bool
	}{
		"nobody did anything": {func(*testing.T, *TaskHub) {}, history.Running, false},
		"it was suspended": {func(t *testing.T, h *TaskHub) {
			stored, err := h.loadInstance(t.Context(), "i", "")
			if err != nil {
				t.Error(err)
				return
			}
			mustAppend(t, h, stored.row.State.Instance, len(stored.events), episode(nil, &history.ExecutionSuspended{Header: header(-1)}), stored.etag)
			status(t, h, history.Suspended)
		}, history.Suspended, false},
		"a late write knew less": {func(t *testing.T, h *TaskHub) { status(t, h, history.Pending) }, history.Running, false},
		"it was purged": {func(t *testing.T, h *TaskHub) {
			if err := h.Purge(t.Context(), "i"); err != nil {
				t.Error(err)
			}
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			other := openHub(t, cfg)
			var merges atomic.Int32
			transport := azuritetest.NewCounter(azuritetest.Start(t), nil)
			transport.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
				if call.Name != "MergeEntity" || merges.Add(1) > 1 {
					return next()
				}
				resp, err := next()
				if err != nil {
					return nil, err
				}
				resp.Body.Close()
				tt.meanwhile(t, other)
				return azuritetest.Refusal(req, http.StatusInternalServerError, "InternalError"), nil
			}
			cfg.Transport = transport
			h := openHub(t, cfg)
			runHub(t, h)
			mustStart(t, h, "i", "e", `1`)
			item := mustNext(t, h)
			mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
			state, err := h.Instance(t.Context(), "i", provider.Fetch{})
			switch {
			case tt.gone && !errors.Is(err, provider.ErrInstanceNotFound):
				t.Errorf("the row is %+v, %v, want none", state, err)
			case !tt.gone && (err != nil || state.Status != tt.want):
				t.Errorf("the row is %+v, %v, want %v", state, err, tt.want)
			}
			if merges.Load() < 2 {
				t.Errorf("the row was written %d times", merges.Load())
			}
		})
	}
}

// A worker is to terminate an instance that has not started, and is away for a while.
// Another one does it meanwhile, and the ID is started anew. That is another execution.
func TestTerminate_OfAnInstanceThatHasNotStartedSparesTheNextOfItsID(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	other := openHub(t, cfg)
	transport := azuritetest.NewCounter(azuritetest.Start(t), nil)
	terminate := &history.ExecutionTerminated{Header: header(-1), Reason: new("enough")}
	var away atomic.Bool
	transport.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if call.Name == "MergeEntity" && !away.Swap(true) {
			stored, err := other.loadInstance(t.Context(), "i", "")
			if err == nil {
				err = other.terminateUnstarted(t.Context(), "i", stored, terminate)
			}
			if err != nil {
				t.Error(err)
			}
			mustStart(t, other, "i", "e2", `2`)
		}
		return next()
	}
	cfg.Transport = transport
	h := openHub(t, cfg)
	mustStart(t, other, "i", "e1", `1`)
	stored, err := h.loadInstance(t.Context(), "i", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.terminateUnstarted(t.Context(), "i", stored, terminate); !isConflict(err) {
		t.Errorf("terminating what was replaced ended with %v, want a conflict", err)
	}
	if got := runtimeStatus(t, h, "i"); got != history.Pending || !away.Load() {
		t.Errorf("the second execution is %v, want %v", got, history.Pending)
	}
}

func mustRows(t *testing.T, h *TaskHub, instance history.OrchestrationInstance, ordinal int, events []history.Event) []entity {
	t.Helper()
	rows, err := h.offloadedRows(t.Context(), instance.InstanceID, instance.ExecutionID, ordinal, events)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// mustAppend appends events to a history and returns the sentinel's ETag.
func mustAppend(t *testing.T, h *TaskHub, instance history.OrchestrationInstance, ordinal int, events []history.Event, etag string) string {
	t.Helper()
	etag, _, err := h.appendHistory(t.Context(), instance, mustRows(t, h, instance, ordinal, events), etag)
	if err != nil {
		t.Fatal(err)
	}
	return etag
}
