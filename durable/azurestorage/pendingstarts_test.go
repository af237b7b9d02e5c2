package azurestorage

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// mustLoseBlobs deletes all blobs of an instance.
func mustLoseBlobs(t *testing.T, h *TaskHub, id string) {
	t.Helper()
	blobs, err := h.instances.BlobsOf(t.Context(), id)
	if err == nil {
		err = h.largeMessages.RemoveAll(t.Context(), blobs)
	}
	if err != nil || len(blobs) == 0 {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
}

// A pending instance without its input can never start. It fails, so that its ID becomes free. Its
// failure can be read, and a late first checkpoint is rejected.
func TestPendingStart_FailsWithoutItsInput(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "i", "e1", large)
	pending := startMessage("i", "e1", large)
	if err := h.starts.resendStart(t.Context(), pending.Target); err != nil || runtimeStatus(t, h, "i") != history.Pending {
		t.Fatalf("with its input: status %v, %v; want Pending", runtimeStatus(t, h, "i"), err)
	}
	mustLoseBlobs(t, h, "i")
	if err := h.starts.resendStart(t.Context(), pending.Target); err != nil {
		t.Fatal(err)
	}
	state, err := h.Instance(t.Context(), "i", provider.Fetch{Input: true, Output: true})
	if err != nil || state.Status != history.Failed || !strings.Contains(store.Value(state.Output), "i/message-") {
		t.Errorf("%+v, %v; want Failed with the name of the blob", state, err)
	}
	_, _, err = h.instances.Histories.Append(t.Context(), pending.Target, mustRows(t, h, pending.Target, 0, episode([]provider.TaskMessage{startMessage("i", "e1", `1`)})), "", nil)
	if !errors.Is(err, provider.ErrSessionLost) {
		t.Errorf("its first checkpoint: %v, want %v", err, provider.ErrSessionLost)
	}
	mustStart(t, h, "i", "e2", `2`)
}

// A process dies after it inserted the row of an instance. The client got no response and starts
// the ID again, with another execution ID. It gets an InstanceExistsError, and the instance starts
// immediately, even if the client is in another process.
func TestPendingStart_IsResentWhenAClientStartsTheIDAgain(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *TaskHub{
		"with a worker":    func(t *testing.T) *TaskHub { h, _ := idleInstance(t, "warm-up"); return h },
		"without a worker": func(t *testing.T) *TaskHub { return openHub(t, testConfig(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				h := open(t)
				if err := h.resources.ensureCreated(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, id := range []string{"later", "i"} { // "later" comes first, because the message of "i" disables direct starts
					start := startMessage(id, "e1", `1`).Event.(*history.ExecutionStarted)
					if id == "later" {
						start.ScheduledStart = time.Now().Add(time.Hour)
					}
					if _, _, err := h.instances.Rows.Create(t.Context(), start, nil, ""); err != nil {
						t.Fatal(err)
					}
					again := startMessage(id, "e2", `1`)
					if err := h.StartInstance(t.Context(), again, liveStatuses); !errors.Is(err, provider.ErrInstanceExists) {
						t.Errorf("starting %s again returned %v, want %v", id, err, provider.ErrInstanceExists)
					}
				}
				if n := messageCount(t, h.controlQueues[0]); n != 1 {
					t.Errorf("%d messages are in the queue, want one start", n)
				}
				worker := h
				if name == "without a worker" {
					worker, _ = serving(t, h.cfg)
				}
				if item := mustNext(t, worker); item.Instance.ExecutionID != "e1" || eventTypes(item.Messages) != "ExecutionStarted " {
					t.Errorf("delivered %s to %v, want the start of the first execution", eventTypes(item.Messages), item.Instance)
				}
			})
		})
	}
}

// A worker that finds an overdue pending instance resends its start until it succeeds.
func TestPendingStart_IsResentByAWorkerUntilItSucceeds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var rejects atomic.Bool
		counter := newCounter(t)
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "PutMessage" && rejects.Load() {
				return azuritetest.ErrorResponse(req, http.StatusForbidden, "AuthorizationFailure"), nil
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := serving(t, cfg)
		if _, _, err := h.instances.Rows.Create(t.Context(), startMessage("i", "e1", `1`).Event.(*history.ExecutionStarted), nil, ""); err != nil {
			t.Fatal(err)
		}
		rejects.Store(true)
		time.Sleep(scanInterval + 2*time.Minute)
		if messageCount(t, h.controlQueues[0]) != 0 || !logged(h, "cannot query pending instances") {
			t.Fatal("its start was not rejected")
		}
		rejects.Store(false)
		time.Sleep(scanInterval)
		if item := mustNext(t, h); item.Instance.InstanceID != "i" || eventTypes(item.Messages) != "ExecutionStarted " {
			t.Errorf("delivered %s to %v, want the start", eventTypes(item.Messages), item.Instance)
		}
	})
}

// An instance whose start is queued and resent starts once.
func TestPendingStart_WithTwoMessagesStartsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		client := openHub(t, testConfig(t))
		mustStart(t, client, "i", "e1", `1`)
		if err := client.starts.resendStart(t.Context(), startMessage("i", "e1", `1`).Target); err != nil {
			t.Fatal(err)
		}
		if n := messageCount(t, client.controlQueues[0]); n != 2 {
			t.Fatalf("%d messages are in the queue, want the start twice", n)
		}
		h, _ := serving(t, client.cfg)
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "ExecutionStarted " {
			t.Errorf("delivered %s, want one start", eventTypes(item.Messages))
		}
		commitEnd(t, item, 0, `1`)
		patience.Until(t, "the messages are gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
	})
}

// A process remembers the executions whose starts it has resent most recently, within a limit.
func TestPendingStart_RemembersOnlyTheMostRecent(t *testing.T) {
	t.Parallel()
	var again recentExecutions
	of := func(i int) history.OrchestrationInstance {
		return history.OrchestrationInstance{InstanceID: strconv.Itoa(i)}
	}
	const sent = 5 * recentMax / 2
	for i := range sent {
		again.add(of(i))
		if !again.has(of(i)) || !again.has(of(max(0, i-recentMax+1))) {
			t.Fatalf("after %d, one of the last %d is forgotten", i, recentMax)
		}
	}
	if n := len(again.latest) + len(again.older); n > 2*recentMax || again.has(of(0)) {
		t.Errorf("%d are remembered, the first: %t", n, again.has(of(0)))
	}
}

// A pending instance that has started or continued as new does not fail, although its row is
// outdated.
func TestPendingStart_DoesNotFailIfItHasStarted(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	for id, execution := range map[string]string{"begun": "e1", "continued": "e2"} {
		mustStart(t, h, id, "e1", large)
		mustLoseBlobs(t, h, id)
		first := startMessage(id, execution, `1`)
		notes := map[string]string{}
		if execution != "e1" {
			notes[wire.FirstExecutionColumn] = "e1"
		}
		if _, _, err := h.instances.Histories.Append(t.Context(), first.Target, mustRows(t, h, first.Target, 0, episode([]provider.TaskMessage{first})), "", notes); err != nil {
			t.Fatal(err)
		}
		if err := h.starts.resendStart(t.Context(), history.OrchestrationInstance{InstanceID: id, ExecutionID: "e1"}); err != nil {
			t.Fatal(err)
		}
		if got := runtimeStatus(t, h, id); got != history.Pending {
			t.Errorf("%s: status %v, want Pending", id, got)
		}
	}
}

// A history whose blobs are missing is ignored if its instance was purged or another execution is
// about to start. Otherwise it is damaged.
func TestLoadInstance_IgnoresTheHistoryOfAPurgedInstance(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if err := h.resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, tt := range map[string]struct {
		row   string // the execution in the row
		wants bool
	}{"purged": {"", true}, "started anew": {"e2", true}, "there": {"e1", false}} {
		if tt.row != "" {
			mustStart(t, h, id, tt.row, `1`)
		}
		start := startMessage(id, "e1", large)
		if _, _, err := h.instances.Histories.Append(t.Context(), start.Target, mustRows(t, h, start.Target, 0, episode([]provider.TaskMessage{start})), "", nil); err != nil {
			t.Fatal(err)
		}
		mustLoseBlobs(t, h, id)
		for _, wanted := range []string{"e1", ""} {
			loaded, err := h.instances.Load(t.Context(), id, wanted)
			switch {
			case !tt.wants && store.IsBlobGone(err):
			case tt.wants && err == nil && !loaded.Known.Started && len(loaded.Events) == 0 && loaded.ETag != "" && loaded.ExecutionID == wanted:
			default:
				t.Errorf("%s: loading execution %q returned %+v, %v", id, wanted, loaded, err)
			}
		}
	}
}
