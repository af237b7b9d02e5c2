package azurestorage

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// scheduleOne starts an instance that waits for one activity. It waits until the start message,
// which is deleted in the background, is gone.
func scheduleOne(t testing.TB, h *TaskHub, id string) {
	t.Helper()
	mustStart(t, h, id, "e1", `1`)
	commitActivity(t, mustNext(t, h), 0, `["a"]`)
	patience.Until(t, "the start message is gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
}

// The work item stays in its queue, hidden, until the history has the result. No message carries
// the result.
func TestDirectResult_KeepsTheWorkItemUntilTheResultIsCommitted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := serving(t, testConfig(t))
		scheduleOne(t, h, "direct")
		completeActivity(t, h, `"a"`)
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "TaskCompleted " {
			t.Fatalf("messages %s, want the result", eventTypes(item.Messages))
		}
		if all, visible := messageCount(t, h.workItems), visibleMessages(t, h.workItems); all != 1 || visible != 0 {
			t.Errorf("%d work items, %d of them visible; want one hidden item", all, visible)
		}
		if n := messageCount(t, h.controlQueues[0]); n != 0 {
			t.Errorf("%d messages with results, want none", n)
		}
		commitEnd(t, item, 1, `1`)
		patience.Until(t, "the work item is gone after the checkpoint", func() bool { return messageCount(t, h.workItems) == 0 && heldCount(h) == 0 })
	})
}

// rejections are the causes for which a directly delivered message is not committed.
var rejections = map[string]func(t *testing.T, h *TaskHub, stop func()){
	"the episode failed": func(t *testing.T, h *TaskHub, _ func()) {
		item := mustNext(t, h)
		if err := errors.Join(item.Session.Abandon(t.Context(), errLost), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
	},
	"the worker stopped": func(_ *testing.T, _ *TaskHub, stop func()) { stop() },
}

// If this process cannot commit a result that was delivered directly, it sends the result as a
// message. The activity does not run again.
func TestDirectResult_IsSentWhenItCannotBeCommitted(t *testing.T) {
	t.Parallel()
	for name, cause := range rejections {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				h, stop := serving(t, testConfig(t))
				scheduleOne(t, h, "direct")
				completeActivity(t, h, `"a"`)
				cause(t, h, stop)
				if items, results := messageCount(t, h.workItems), messageCount(t, h.controlQueues[0]); items != 0 || results != 1 {
					t.Errorf("%d work items and %d results are in the queues, want only the result", items, results)
				}
				other := h
				if name == "the worker stopped" {
					cfg := testConfig(t)
					cfg.TaskHub = h.cfg.TaskHub
					other = openHub(t, cfg)
					runHub(t, other)
				}
				item := mustNext(t, other)
				if done, ok := item.Messages[0].Event.(*history.TaskCompleted); !ok || store.Value(done.Result) != `"a"` {
					t.Fatalf("messages %s, want the result", eventTypes(item.Messages))
				}
				commitEnd(t, item, 1, `1`)
			})
		})
	}
}

// If the message cannot be sent either, the activity runs again.
func TestDirectResult_ThatCannotBeSentMakesTheActivityRunAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var cut atomic.Bool
		counter := newCounter(t)
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if cut.Load() && call.Name == "PutMessage" {
				return azuritetest.ErrorResponse(req, http.StatusForbidden, "AuthorizationFailure"), nil
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := serving(t, cfg)
		scheduleOne(t, h, "direct")
		completeActivity(t, h, `"a"`)
		item := mustNext(t, h)
		cut.Store(true)
		if err := errors.Join(item.Session.Abandon(t.Context(), errLost), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		cut.Store(false)
		completeActivity(t, h, `"again"`)
		item = mustNext(t, h)
		if done, ok := item.Messages[0].Event.(*history.TaskCompleted); !ok || store.Value(done.Result) != `"again"` {
			t.Fatalf("messages %s, want the second result", eventTypes(item.Messages))
		}
		commitEnd(t, item, 1, `1`)
	})
}

// An activity's slot is free when the activity ends, not when its result is committed.
func TestDirectResult_DoesNotOccupyAnActivitySlot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.MaxConcurrentActivities = 1
		h, _ := serving(t, cfg)
		mustStart(t, h, "two", "e1", `1`)
		item := mustNext(t, h)
		cp := &provider.Checkpoint{Instance: item.Instance}
		var decided []history.Event
		for i := range 2 {
			ev, msg := schedule(item, i, `["a"]`)
			decided, cp.Activities = append(decided, ev), append(cp.Activities, msg)
		}
		cp.NewEvents = episode(item.Messages, decided...)
		mustCommit(t, item, cp)
		completeActivity(t, h, `1`)
		completeActivity(t, h, `2`) // before the first result is dispatched
		results := map[int]bool{}
		for len(results) < 2 {
			item = mustNext(t, h)
			for _, m := range item.Messages {
				results[m.Event.(*history.TaskCompleted).TaskScheduledID] = true
			}
			mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		}
		patience.Until(t, "no work item is left", func() bool { return messageCount(t, h.workItems) == 0 })
	})
}
