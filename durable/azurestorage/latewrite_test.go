package azurestorage

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A worker that is believed dead may commit a checkpoint while another worker reads the history
// page by page. The pages then have the new sentinel, but match neither the old nor the new
// history.
func TestLoadHistory_IsConsistentAcrossPages(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	writer := openHub(t, cfg)
	mustStart(t, writer, "i", "e", `1`)
	start := startMessage("i", "e", `1`)
	first := episode([]provider.TaskMessage{start})
	etag := mustAppend(t, writer, start.Target, 0, first, "")

	pages := 0
	transport := newCounter(t)
	transport.Intercept = func(_ azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, "History()") {
			return next()
		}
		query := req.URL.Query()
		query.Set("$top", "3") // the sentinel is the next row after the page
		req.URL.RawQuery = query.Encode()
		if pages++; pages == 3 { // the last page of the first paged read
			mustAppend(t, writer, start.Target, len(first), episode(nil), etag)
		}
		return next()
	}
	cfg.Transport = transport
	reader := openHub(t, cfg)
	loaded, err := reader.instances.Histories.Load(t.Context(), "i", "e")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(loaded.Events), len(first)+2; got != want {
		t.Errorf("%d events were read, with the sentinel %s; want %d", got, loaded.ETag, want)
	}
	if pages < 5 { // the first read finds that there are several pages; two paged reads have two pages each
		t.Errorf("the history had %d pages", pages)
	}
}

// An instance that has not started is terminated while the first checkpoint of a worker that is
// believed dead is in flight. The checkpoint must fail.
func TestTerminate_OfAnUnstartedInstancePreventsItsStart(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "i", "e", `1`)
	stored, err := h.instances.Load(t.Context(), "i", "")
	if err != nil {
		t.Fatal(err)
	}
	terminate := &history.ExecutionTerminated{Header: header(-1), Reason: new("enough")}
	if err := h.instances.TerminateUnstarted(t.Context(), "i", stored, terminate); err != nil {
		t.Fatal(err)
	}
	start := startMessage("i", "e", `1`)
	_, _, err = h.instances.Histories.Append(t.Context(), start.Target, mustRows(t, h, start.Target, 0, episode([]provider.TaskMessage{start})), "", nil)
	if !errors.Is(err, provider.ErrSessionLost) {
		t.Errorf("the late checkpoint: %v, want %v", err, provider.ErrSessionLost)
	}
	if got := runtimeStatus(t, h, "i"); got != history.Terminated {
		t.Errorf("status %v, want Terminated", got)
	}
	// The message may be redelivered and processed with the instance as it is now or as it was
	// before.
	if err := h.instances.TerminateUnstarted(t.Context(), "i", stored, terminate); !store.IsConflict(err) {
		t.Errorf("terminating it with the previous state: %v, want a conflict", err)
	}
	if stored, err = h.instances.Load(t.Context(), "i", ""); err != nil {
		t.Fatal(err)
	}
	if stored.ETag == "" || stored.Known.Started {
		t.Errorf("the history has the sentinel %q and %d events", stored.ETag, len(stored.Events))
	}
	if err := h.instances.TerminateUnstarted(t.Context(), "i", stored, terminate); err != nil {
		t.Errorf("terminating it again: %v", err)
	}
}

// An instance that was terminated before it started can be replaced, like any ended instance.
func TestTerminate_OfAnUnstartedInstanceFreesTheID(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		mustStart(t, h, "i", "e1", `1`)
		stored, err := h.instances.Load(t.Context(), "i", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.instances.TerminateUnstarted(t.Context(), "i", stored, &history.ExecutionTerminated{Header: header(-1)}); err != nil {
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
				t.Fatalf("the second execution is %v, want Completed", got)
			}
		}
	})
}

// A worker dies after it wrote a suspension to the history and before it wrote the row. The
// consumed message is gone. The next checkpoint writes the status although it is about another
// event: a user resumes only an instance that looks suspended.
func TestInstanceRow_GetsAMissedSuspension(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
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
		stored, err := h.instances.Load(t.Context(), "i", "e")
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, h, item.Instance, len(started), episode(nil, &history.ExecutionSuspended{Header: header(-1)}), stored.ETag)
		h.instances.Evict("i") // as if another worker had appended it
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
	})
}

// The row is written, but the response is lost and the worker pauses. When it writes the row again,
// it must not revert changes that follow from the later history. It does revert the write of a
// worker with less recent knowledge.
func TestInstanceRow_IsNotRevertedByALateWrite(t *testing.T) {
	t.Parallel()
	advance := func(ev history.Event, status history.RuntimeStatus) func(t *testing.T, h *TaskHub) {
		return func(t *testing.T, h *TaskHub) {
			stored, err := h.instances.Load(t.Context(), "i", "")
			if err != nil {
				t.Error(err)
				return
			}
			mustAppend(t, h, stored.Row.State.Instance, len(stored.Events), episode(nil, ev), stored.ETag)
			mustMerge(t, h, "i", "", status)
		}
	}
	for name, tt := range map[string]struct {
		meanwhile func(t *testing.T, h *TaskHub)
		want      history.RuntimeStatus
		gone      bool
	}{
		"no change":         {func(*testing.T, *TaskHub) {}, history.Running, false},
		"it was suspended":  {advance(&history.ExecutionSuspended{Header: header(-1)}, history.Suspended), history.Suspended, false},
		"it has ended":      {advance(&history.ExecutionCompleted{Header: header(0), Status: history.Completed}, history.Completed), history.Completed, false},
		"an outdated write": {func(t *testing.T, h *TaskHub) { mustMerge(t, h, "i", "", history.Pending) }, history.Running, false},
		"it was purged": {func(t *testing.T, h *TaskHub) {
			if err := h.Purge(t.Context(), "i", nil); err != nil {
				t.Error(err)
			}
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				cfg := testConfig(t)
				cfg.LastUpdatedTolerance = -1 // no row write is delayed
				other := openHub(t, cfg)
				var merges atomic.Int32
				transport := newCounter(t)
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
					return azuritetest.ErrorResponse(req, http.StatusInternalServerError, "InternalError"), nil
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
					t.Errorf("the row is %+v, %v, want ErrInstanceNotFound", state, err)
				case !tt.gone && (err != nil || state.Status != tt.want):
					t.Errorf("the row is %+v, %v, want %v", state, err, tt.want)
				}
				if merges.Load() < 2 {
					t.Errorf("the row was written %d times", merges.Load())
				}
			})
		})
	}
}

// A late worker writes an earlier generation into the row while a later generation continues as
// new. The commit must not mistake the earlier generation for a newer execution.
func TestInstanceRow_OverwritesAnEarlierGeneration(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		other := openHub(t, cfg)
		var late atomic.Bool
		transport := newCounter(t)
		transport.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "MergeEntity" && late.Swap(false) {
				mustMerge(t, other, "i", "e2", history.Running)
			}
			return next()
		}
		cfg.Transport = transport
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "i", "e1", `1`)
		item := mustNext(t, h)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		stored, err := other.instances.Load(t.Context(), "i", "")
		if err != nil {
			t.Fatal(err)
		}
		second, third := startMessage("i", "e2", `2`), startMessage("i", "e3", `3`)
		mustAppend(t, other, second.Target, 0, episode([]provider.TaskMessage{second}), stored.ETag)
		h.instances.Evict("i")
		raise(t, h, "i", "go", `1`)
		item = mustNext(t, h)
		late.Store(true)
		mustCommit(t, item, &provider.Checkpoint{Instance: third.Target, ContinuedAsNew: true, NewEvents: episode([]provider.TaskMessage{third})})
		row, err := h.instances.Rows.Read(t.Context(), "i")
		if err != nil || row.State.Instance.ExecutionID != "e3" || late.Load() {
			t.Errorf("the row is %+v, %v, want one of e3", row, err)
		}
	})
}

// The row says that the instance failed, but the response is lost. A client rewinds the instance
// before the row is written again. The second write must not set the status back to Failed.
func TestInstanceRow_IsNotRevertedAfterARewind(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.LastUpdatedTolerance = -1 // no row write is delayed
		other := openHub(t, cfg)
		var fails atomic.Bool
		transport := newCounter(t)
		transport.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			resp, err := next()
			if call.Name != "MergeEntity" || !fails.Swap(false) || err != nil {
				return resp, err
			}
			resp.Body.Close()
			if err := other.Rewind(t.Context(), "i", "again"); err != nil {
				t.Error(err)
			}
			return azuritetest.ErrorResponse(req, http.StatusInternalServerError, "InternalError"), nil
		}
		cfg.Transport = transport
		h := openHub(t, cfg)
		stop := runHub(t, h)
		mustStart(t, h, "i", "e", `1`)
		commitActivity(t, mustNext(t, h), 0, `["a"]`)
		task := mustActivity(t, h)
		err := task.Lock.Complete(t.Context(), &history.TaskFailed{Header: header(history.NoEventID), TaskScheduledID: task.Task.EventID})
		if err != nil {
			t.Fatal(err)
		}
		item := mustNext(t, h)
		fails.Store(true)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages,
			&history.ExecutionCompleted{Header: header(1), Status: history.Failed, Result: new("no")})})
		if got := runtimeStatus(t, h, "i"); got != history.Pending || fails.Load() {
			t.Errorf("the row says %v, want %v", got, history.Pending)
		}
		stop()

		// The client died after it changed the history and before it wrote the row. The next
		// checkpoint writes the row.
		mustMerge(t, other, "i", "", history.Failed)
		runHub(t, other)
		item = mustNext(t, other)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if got := runtimeStatus(t, other, "i"); got != history.Running {
			t.Errorf("the row of the rewound instance says %v, want %v", got, history.Running)
		}
	})
}

// A checkpoint is written, but the response is lost. Another worker advances the instance before
// the first worker checks the result. The checkpoint is committed, but the first worker must not
// append to it.
func TestAppendHistory_FailsAfterAnotherWorkersCheckpoint(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	other := openHub(t, cfg)
	start := startMessage("i", "e", `1`)
	first := episode([]provider.TaskMessage{start})
	var lost atomic.Bool
	transport := newCounter(t)
	transport.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		resp, err := next()
		if !isCommit(call) || err != nil || lost.Swap(true) {
			return resp, err
		}
		resp.Body.Close()
		stored, err := other.instances.Load(t.Context(), "i", "e")
		if err != nil {
			t.Error(err)
			return nil, err
		}
		mustAppend(t, other, start.Target, len(first), episode(nil, &history.ExecutionSuspended{Header: header(-1)}), stored.ETag)
		return nil, errLost
	}
	cfg.Transport = transport
	h := openHub(t, cfg)
	mustStart(t, other, "i", "e", `1`)
	etag := mustAppend(t, h, start.Target, 0, first, "")
	_, _, err := h.instances.Histories.Append(t.Context(), start.Target, mustRows(t, h, start.Target, len(first), episode(nil)), etag, nil)
	if !errors.Is(err, provider.ErrSessionLost) || !lost.Load() {
		t.Errorf("the next checkpoint: %v, want %v", err, provider.ErrSessionLost)
	}
	stored, err := other.instances.Load(t.Context(), "i", "e")
	if err != nil || stored.Known.Status != history.Suspended || len(stored.Events) != len(first)+3 {
		t.Errorf("the history is %+v, %v, want the one of the other worker", stored, err)
	}
}

// The first checkpoint of an instance is written, but the response is lost, and the worker pauses
// until its messages are visible again. The instance is purged meanwhile. The worker must not
// create the history again.
func TestAppendHistory_DoesNotCreateAPurgedInstanceAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.LeaseInterval = 2 * time.Second // also the visibility timeout of messages
		other := openHub(t, cfg)
		var away atomic.Bool
		transport := newCounter(t)
		transport.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			resp, err := next()
			if !isCommit(call) || err != nil || away.Swap(true) {
				return resp, err
			}
			resp.Body.Close()
			if err := other.Purge(t.Context(), "i", nil); err != nil {
				t.Error(err)
			}
			time.Sleep(cfg.LeaseInterval)
			return nil, errLost
		}
		cfg.Transport = transport
		h := openHub(t, cfg)
		mustStart(t, other, "i", "e", `1`)
		start := startMessage("i", "e", `1`)
		_, _, err := h.instances.Histories.Append(t.Context(), start.Target, mustRows(t, h, start.Target, 0, episode([]provider.TaskMessage{start})), "", nil)
		if err == nil || !away.Load() {
			t.Error("the history was created again")
		}
		if rows := storedRows(t, h.instances.HistoryTable, "i"); len(rows) > 0 {
			t.Errorf("%d rows are stored, want 0", len(rows))
		}
	})
}

// A worker pauses while the row writes of two checkpoints are pending. Another worker ends the
// instance. The first worker must not write the row, although its first attempt learns the current
// ETag.
func TestInstanceRow_IsNotChangedByLateWritesOfSeveralCheckpoints(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		other := openHub(t, cfg)
		var away atomic.Bool
		back := make(chan struct{})
		transport := newCounter(t)
		transport.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "MergeEntity" && !away.Swap(true) {
				<-back
			}
			return next()
		}
		cfg.Transport = transport
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "i", "e", `1`)
		item := mustNext(t, h)
		first := episode(item.Messages)
		if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: first}); err != nil {
			t.Fatal(err)
		}
		second := episode(nil, &history.ExecutionSuspended{Header: header(-1)})
		done := make(chan error)
		go func() {
			done <- item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: second})
		}()
		var stored *instances.Instance
		patience.Until(t, "both checkpoints are in the history, and a row write is in flight", func() (ok bool) {
			var err error
			stored, err = other.instances.Load(t.Context(), "i", "")
			return err == nil && len(stored.Events) == len(first)+len(second) && away.Load()
		})
		end := &history.ExecutionCompleted{Header: header(0), Status: history.Completed}
		mustAppend(t, other, item.Instance, len(stored.Events), episode(nil, end), stored.ETag)
		mustMerge(t, other, "i", "", history.Completed)
		close(back)
		if err := errors.Join(<-done, item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := runtimeStatus(t, other, "i"); got != history.Completed {
			t.Errorf("the row says %v, want %v", got, history.Completed)
		}
	})
}

// mustMerge sets the status in an instance's row, and the execution ID unless it is empty.
func mustMerge(t *testing.T, h *TaskHub, id, executionID string, status history.RuntimeStatus) {
	t.Helper()
	row := wire.Row{PartitionKey: wire.EscapeKey(id)}
	row.SetString("RuntimeStatus", status.String())
	if executionID != "" {
		row.SetString("ExecutionId", executionID)
	}
	if _, err := h.instances.RowTable.Merge(t.Context(), row, "*"); err != nil {
		t.Error(err)
	}
}

// A worker pauses before it terminates an instance that has not started. Another worker terminates
// it, and the ID is started again. The first worker must not terminate the new execution.
func TestTerminate_OfAnUnstartedInstanceSparesItsReplacement(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	other := openHub(t, cfg)
	transport := newCounter(t)
	terminate := &history.ExecutionTerminated{Header: header(-1), Reason: new("enough")}
	var away atomic.Bool
	transport.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if call.Name == "MergeEntity" && !away.Swap(true) {
			stored, err := other.instances.Load(t.Context(), "i", "")
			if err == nil {
				err = other.instances.TerminateUnstarted(t.Context(), "i", stored, terminate)
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
	stored, err := h.instances.Load(t.Context(), "i", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.instances.TerminateUnstarted(t.Context(), "i", stored, terminate); !store.IsConflict(err) {
		t.Errorf("terminating a replaced instance: %v, want a conflict", err)
	}
	if got := runtimeStatus(t, h, "i"); got != history.Pending || !away.Load() {
		t.Errorf("the second execution is %v, want %v", got, history.Pending)
	}
}

func mustRows(t *testing.T, h *TaskHub, instance history.OrchestrationInstance, ordinal int, events []history.Event) []wire.Row {
	t.Helper()
	rows, err := h.instances.Histories.Encode(t.Context(), instance.InstanceID, instance.ExecutionID, ordinal, events)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// mustAppend appends events to a history and returns the new ETag of the sentinel.
func mustAppend(t *testing.T, h *TaskHub, instance history.OrchestrationInstance, ordinal int, events []history.Event, etag string) string {
	t.Helper()
	etag, _, err := h.instances.Histories.Append(t.Context(), instance, mustRows(t, h, instance, ordinal, events), etag, nil)
	if err != nil {
		t.Fatal(err)
	}
	return etag
}

// isCommit reports whether a call writes a history.
func isCommit(c azuritetest.Call) bool {
	return c.Name == "EntityGroupTransaction" && strings.HasSuffix(c.Target, "History")
}
