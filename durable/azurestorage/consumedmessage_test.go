package azurestorage

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// mustHaveAnEvent returns a hub and its instance "loop" with the pending event "first". While stuck
// is true, all calls named failing fail.
func mustHaveAnEvent(t *testing.T, failing string, how fault) (h *TaskHub, item *provider.OrchestrationWorkItem, stuck *atomic.Bool) {
	t.Helper()
	stuck = new(atomic.Bool)
	cfg := testConfig(t)
	cfg.LeaseInterval = 2 * time.Second // also the visibility timeout of messages
	cfg.Transport = faulty(t, func(c azuritetest.Call) fault {
		if c.Name == failing && stuck.Load() {
			return how
		}
		return pass
	})
	h = openHub(t, cfg)
	runHub(t, h)
	mustStart(t, h, "loop", "e1", `1`)
	commitActivity(t, mustNext(t, h), 0, `["a"]`)
	raise(t, h, "loop", "first", `1`)
	return h, mustNext(t, h), stuck
}

// The history of the new execution does not show that the previous one consumed the event.
func TestControlQueue_AnUndeletedEventDoesNotReachTheNextExecution(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, item, stuck := mustHaveAnEvent(t, "DeleteMessage", failBefore)
		next := history.OrchestrationInstance{InstanceID: "loop", ExecutionID: "e2"}
		stuck.Store(true)
		mustCommit(t, item, &provider.Checkpoint{
			Instance: next, ContinuedAsNew: true,
			NewEvents: episode(nil, &history.ExecutionStarted{Header: header(-1), Instance: next, Name: "HelloSeq", Input: new(`"second"`)}),
		})
		patience.Until(t, "the event is redelivered", func() bool {
			return logged(h, "DuplicateMessageDetected", "was not deleted")
		})
		stuck.Store(false)
		patience.Until(t, "the event is deleted", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })

		raise(t, h, "loop", "second", `2`)
		item = mustNext(t, h)
		if got := eventNames(item.Messages); got != "second" || item.Instance.ExecutionID != "e2" {
			t.Errorf("execution %s got the events %q, want only the second in e2", item.Instance.ExecutionID, got)
		}
		commitEnd(t, item, 0, `1`)
	})
}

// A checkpoint consumes an event, its row cannot be written, and the instance continues as new. The
// event is redelivered and must not reach the new execution.
func TestControlQueue_AnEventWithAFailedRowWriteDoesNotReachTheNextExecution(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"of the previous checkpoint": true, "of the same checkpoint": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				h, item, stuck := mustHaveAnEvent(t, "MergeEntity", refuse)
				stuck.Store(true)
				if first {
					if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, CustomStatus: new(`"busy"`), NewEvents: episode(item.Messages)}); err != nil {
						t.Fatal(err)
					}
					patience.Until(t, "the row write is rejected", func() bool { return logged(h, "cannot write instance row") })
					stuck.Store(false)
				}
				next := history.OrchestrationInstance{InstanceID: "loop", ExecutionID: "e2"}
				err := item.Session.Commit(t.Context(), &provider.Checkpoint{
					Instance: next, ContinuedAsNew: true,
					NewEvents: episode(nil, &history.ExecutionStarted{Header: header(-1), Instance: next, Name: "HelloSeq", Input: new(`"second"`)}),
				})
				if (err == nil) != first {
					t.Fatalf("Commit returned %v", err)
				}
				stuck.Store(false)
				if err := item.Session.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !first {
					patience.Until(t, "the event is redelivered", func() bool { return logged(h, "DuplicateMessageDetected", "was not deleted") })
				}
				patience.Until(t, "the event is deleted", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
				row, err := h.instances.Rows.Read(t.Context(), "loop")
				if err != nil || row.State.Instance.ExecutionID != "e2" {
					t.Errorf("the row is %+v, %v, want one of e2", row, err)
				}
				raise(t, h, "loop", "second", `2`)
				item = mustNext(t, h)
				if names := eventNames(item.Messages); names != "second" || item.Instance.ExecutionID != "e2" {
					t.Errorf("execution %s got the events %q, want only the second in e2", item.Instance.ExecutionID, names)
				}
				commitEnd(t, item, 0, `1`)
			})
		})
	}
}

// eventNames returns the names of the events in messages.
func eventNames(messages []provider.TaskMessage) string {
	var names []string
	for _, m := range messages {
		if e, ok := m.Event.(*history.EventRaised); ok {
			names = append(names, e.Name)
		}
	}
	return strings.Join(names, " ")
}
