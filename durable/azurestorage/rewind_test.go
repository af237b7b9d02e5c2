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
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// failActivity makes the next activity fail.
func failActivity(t testing.TB, h *TaskHub) {
	t.Helper()
	item := mustActivity(t, h)
	err := item.Lock.Complete(t.Context(), &history.TaskFailed{
		Header: header(history.NoEventID), TaskScheduledID: item.Task.EventID, Reason: new("kaboom"),
		Failure: &history.FailureDetails{ErrorType: "E", ErrorMessage: "kaboom"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// commitFailure commits an episode in which the orchestrator fails. It notifies the parent if
// parent is not nil.
func commitFailure(t testing.TB, item *provider.OrchestrationWorkItem, id int, parent *history.ParentInstance) {
	t.Helper()
	cp := &provider.Checkpoint{
		Instance: item.Instance,
		NewEvents: episode(item.Messages, &history.ExecutionCompleted{
			Header: header(id), Status: history.Failed, Result: new("kaboom"),
			Failure: &history.FailureDetails{ErrorType: "E", ErrorMessage: "kaboom"},
		}),
	}
	if parent != nil {
		cp.Messages = []provider.TaskMessage{{Target: parent.Instance, Event: &history.SubOrchestrationInstanceFailed{
			Header: header(history.NoEventID), TaskScheduledID: parent.TaskScheduleID, Reason: new("kaboom"),
		}}}
	}
	mustCommit(t, item, cp)
}

// failInstance starts an instance whose only activity fails.
func failInstance(t testing.TB, h *TaskHub, id string) {
	t.Helper()
	mustStart(t, h, id, id+"-e", `1`)
	commitActivity(t, mustNext(t, h), 0, `["x"]`)
	failActivity(t, h)
	commitFailure(t, mustNext(t, h), 1, nil)
}

// finishRewound runs a rewound instance to its end: the activity runs again and succeeds.
func finishRewound(t testing.TB, h *TaskHub) {
	t.Helper()
	item := mustNext(t, h)
	if got := arrivedTypes(item); got != "GenericEvent" {
		t.Fatalf("delivered %s to the rewound instance, want a GenericEvent", got)
	}
	commitActivity(t, item, 0, `["x"]`)
	completeActivity(t, h, `"ok"`)
	commitEnd(t, mustNext(t, h), 1, `"ok"`)
}

func arrivedTypes(item *provider.OrchestrationWorkItem) string {
	return strings.TrimSpace(eventTypes(item.Messages))
}

func runtimeStatus(t testing.TB, h *TaskHub, id string) history.RuntimeStatus {
	t.Helper()
	state, err := h.Instance(t.Context(), id, provider.Fetch{})
	if err != nil {
		t.Fatal(err)
	}
	return state.Status
}

func TestRewind_RunsTheActivityAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		failInstance(t, h, "a/b")
		if err := h.Rewind(t.Context(), "a/b", "try again"); err != nil {
			t.Fatal(err)
		}
		if status := runtimeStatus(t, h, "a/b"); status != history.Pending {
			t.Errorf("after the rewind: status %v, want Pending as in .NET", status)
		}
		finishRewound(t, h)

		events, err := h.History(t.Context(), "a/b")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ev := range events {
			got = append(got, ev.Type().String())
		}
		want := []string{
			"OrchestratorStarted", "ExecutionStarted", "GenericEvent", "OrchestratorCompleted",
			"OrchestratorStarted", "GenericEvent", "GenericEvent", "OrchestratorCompleted",
			"OrchestratorStarted", "GenericEvent", "TaskScheduled", "OrchestratorCompleted",
			"OrchestratorStarted", "TaskCompleted", "ExecutionCompleted", "OrchestratorCompleted",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
		if reason := events[9].(*history.GenericEvent).Data; store.Value(reason) != "try again" {
			t.Errorf("the reason in the history is %q", store.Value(reason))
		}
		if status := runtimeStatus(t, h, "a/b"); status != history.Completed {
			t.Errorf("at the end: status %v, want Completed", status)
		}
	})
}

func TestRewind_IncludesAFailedChild(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "parent", "pe", `1`)
		item := mustNext(t, h)
		parent := history.ParentInstance{Name: "HelloSeq", Instance: item.Instance, TaskScheduleID: 0}
		child := history.OrchestrationInstance{InstanceID: "child", ExecutionID: "ce"}
		mustCommit(t, item, &provider.Checkpoint{
			Instance:  item.Instance,
			NewEvents: episode(item.Messages, &history.SubOrchestrationInstanceCreated{Header: header(0), Name: "Child", InstanceID: "child"}),
			Messages: []provider.TaskMessage{{Target: child, Event: &history.ExecutionStarted{
				Header: header(history.NoEventID), Instance: child, Parent: &parent, Name: "Child",
			}}},
		})
		commitActivity(t, mustNext(t, h), 0, `["x"]`)
		failActivity(t, h)
		commitFailure(t, mustNext(t, h), 1, &parent)
		commitFailure(t, mustNext(t, h), 1, nil) // the parent's

		if err := h.Rewind(t.Context(), "parent", "again"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"parent", "child"} {
			if status := runtimeStatus(t, h, id); status != history.Pending {
				t.Errorf("%s is %v, want Pending", id, status)
			}
		}
		item = mustNext(t, h)
		if item.Instance != child {
			t.Fatalf("dispatched %v, want the child", item.Instance)
		}
		commitActivity(t, item, 0, `["x"]`)
		completeActivity(t, h, `"ok"`)
		item = mustNext(t, h)
		mustCommit(t, item, &provider.Checkpoint{
			Instance:  item.Instance,
			NewEvents: episode(item.Messages, &history.ExecutionCompleted{Header: header(1), Status: history.Completed, Result: new(`"ok"`)}),
			Messages: []provider.TaskMessage{{Target: parent.Instance, Event: &history.SubOrchestrationInstanceCompleted{
				Header: header(history.NoEventID), TaskScheduledID: 0, Result: new(`"ok"`),
			}}},
		})
		item = mustNext(t, h)
		if item.Instance != parent.Instance || arrivedTypes(item) != "SubOrchestrationInstanceCompleted" {
			t.Fatalf("%v got %s, want the parent to get the child's result", item.Instance, arrivedTypes(item))
		}
		commitEnd(t, item, 1, `"ok"`)
	})
}

// If a rewind is interrupted, the instance resumes after another rewind, or by itself. It never
// runs without a message.
func TestRewind_CanBeInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	for n := range int32(12) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				cfg := testConfig(t)
				h := openHub(t, cfg)
				runHub(t, h)
				failInstance(t, h, "i")

				var count atomic.Int32
				cut := newCounter(t)
				cut.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
					if count.Load() > n { // the process is dead
						return nil, errors.New("the test cut the connection")
					}
					if strings.Contains(req.URL.Path, cfg.TaskHub+"History") || strings.Contains(req.URL.Path, cfg.TaskHub+"Instances") ||
						strings.Contains(req.URL.Path, "$batch") || strings.Contains(req.URL.Path, "messages") {
						count.Add(1)
					}
					return next()
				}
				cfg.Transport = cut
				dying := openHub(t, cfg)
				dying.resources.created.Store(true)
				dying.sender.ArmedFor = 3 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if err := dying.Rewind(ctx, "i", "first"); err == nil && n < 4 {
					t.Errorf("the rewind succeeded with %d requests", n)
				}
				// Like a client, rewind again if the row still says Failed.
				if runtimeStatus(t, h, "i") == history.Failed {
					if err := h.Rewind(t.Context(), "i", "second"); err != nil {
						t.Fatal(err)
					}
				}
				finishRewoundByNow(t, h)
			})
		})
	}
}

// finishRewoundByNow is finishRewound for an instance whose wake-up message may be hidden or
// duplicated.
func finishRewoundByNow(t testing.TB, h *TaskHub) {
	t.Helper()
	item, err := h.NextOrchestration(patience.Context(t))
	if err != nil {
		t.Fatalf("the instance was not dispatched: %v", err)
	}
	commitActivity(t, item, 0, `["x"]`)
	completeActivity(t, h, `"ok"`)
	for {
		item := mustNext(t, h)
		if types := eventTypes(item.Messages); strings.Contains(types, "TaskCompleted") {
			commitEnd(t, item, 1, `"ok"`)
			return
		}
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
	}
}

func TestRewind_OfAnUnknownInstanceFails(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if err := h.Rewind(t.Context(), "nobody", ""); !errors.Is(err, provider.ErrInstanceNotFound) {
		t.Errorf("error %v, want ErrInstanceNotFound", err)
	}
}
