package azurestorage

import (
	"errors"
	"net/http"
	"slices"
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

// With a negative tolerance every checkpoint writes the row. Otherwise the last one does, and the
// first one if it was a second earlier.
func TestInstanceRow_IsWrittenByEveryCheckpointIfConfigured(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		for tolerance, want := range map[time.Duration][]int{-1: {3}, time.Hour: {1, 2}} {
			counter := newCounter(t)
			cfg := testConfig(t)
			cfg.Transport, cfg.LastUpdatedTolerance = counter, tolerance
			h := openHub(t, cfg)
			runHub(t, h)
			mustStart(t, h, "rows", "e1", `1`)
			runHello(t, h, "Tokyo", "Seattle")
			if n := counter.Total(func(c azuritetest.Call) bool { return c.Name == "MergeEntity" }); !slices.Contains(want, n) {
				t.Errorf("tolerance %v: the row was written %d times by 3 checkpoints, want %v", tolerance, n, want)
			}
		}
	})
}

// If the row cannot be written after the first checkpoint, the next checkpoint writes the missed
// changes.
func TestInstanceRow_GetsMissedChanges(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]bool{"the row is pending": false, "a child has no row": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				var cut atomic.Bool
				counter := newCounter(t)
				counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
					if cut.Load() && (call.Name == "MergeEntity" || call.Name == "InsertEntity") {
						return azuritetest.ErrorResponse(req, http.StatusForbidden, "AuthorizationFailure"), nil
					}
					return next()
				}
				cfg := testConfig(t)
				cfg.Transport, cfg.LastUpdatedTolerance = counter, -1 // no row write is delayed
				h := openHub(t, cfg)
				if err := h.resources.ensureCreated(t.Context()); err != nil {
					t.Fatal(err)
				}
				runHub(t, h)
				if missing {
					start := startMessage("i", "e1", `"in"`)
					start.Event.(*history.ExecutionStarted).Parent = &history.ParentInstance{Name: "P", Instance: history.OrchestrationInstance{InstanceID: "p", ExecutionID: "p1"}}
					if _, err := h.sender.Send(t.Context(), h.partitions[0], &wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{InstanceID: "p"}}); err != nil {
						t.Fatal(err)
					}
				} else {
					mustStart(t, h, "i", "e1", `"in"`)
				}
				item := mustNext(t, h)
				ev, msg := schedule(item, 0, `["a"]`)
				cut.Store(true)
				err := item.Session.Commit(t.Context(), &provider.Checkpoint{
					Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg},
				})
				if err := errors.Join(err, item.Session.Release(t.Context())); err != nil {
					t.Fatal(err)
				}
				if state, err := h.Instance(t.Context(), "i", provider.Fetch{}); err == nil && state.Status != history.Pending || missing && err == nil {
					t.Fatalf("the row is %+v, %v; want no write, because it was rejected", state, err)
				}
				completeActivity(t, h, `"a"`)
				item = mustNext(t, h)
				cut.Store(false)
				commitActivity(t, item, 1, `["b"]`)
				state, err := h.Instance(t.Context(), "i", provider.Fetch{Input: true})
				if err != nil {
					t.Fatal(err)
				}
				if state.Status != history.Running || store.Value(state.Input) != `"in"` || state.Name != "HelloSeq" {
					t.Errorf("the row is %v %q with input %s, want Running, the name and the input", state.Status, state.Name, store.Value(state.Input))
				}
			})
		})
	}
}

// If the worker dies after it wrote the first history and the start message is gone, the next
// checkpoint writes the start to the row.
func TestInstanceRow_GetsAMissedStart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		if err := h.resources.ensureCreated(t.Context()); err != nil {
			t.Fatal(err)
		}
		runHub(t, h)
		for id, hasRow := range map[string]bool{"pending": true, "child": false} {
			start := startMessage(id, "e1", `"in"`)
			if hasRow {
				if _, _, err := h.instances.Rows.Create(t.Context(), start.Event.(*history.ExecutionStarted), nil, ""); err != nil {
					t.Fatal(err)
				}
			}
			mustAppend(t, h, start.Target, 0, episode([]provider.TaskMessage{start}), "")
			raise(t, h, id, "go", `1`)
			item := mustNext(t, h)
			mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
			patience.Until(t, "the row says that the instance runs", func() bool {
				state, err := h.Instance(t.Context(), id, provider.Fetch{Input: true})
				return err == nil && state.Status == history.Running && store.Value(state.Input) == `"in"` && state.Name == "HelloSeq"
			})
		}
	})
}

// The storage rejects a custom status for a while, and no checkpoint follows. The consumed message
// is kept until the row is written.
func TestInstanceRow_GetsAMissedCustomStatus(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, item, stuck := mustHaveAnEvent(t, "MergeEntity", refuse)
		stuck.Store(true)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, CustomStatus: new(`"busy"`), NewEvents: episode(item.Messages)})
		patience.Until(t, "the row write is rejected", func() bool { return logged(h, "cannot write instance row") })
		stuck.Store(false)
		patience.Until(t, "the row has the custom status", func() bool {
			state, err := h.Instance(t.Context(), "loop", provider.Fetch{})
			return err == nil && store.Value(state.CustomStatus) == `"busy"`
		})
		patience.Until(t, "the consumed message is deleted", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
	})
}

// An instance is suspended, its row cannot be written, and no checkpoint follows. The consumed
// message is kept, redelivered, and repairs the row: a user resumes only an instance that looks
// suspended.
func TestInstanceRow_IsRepairedByTheConsumedMessage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var cut atomic.Bool
		counter := newCounter(t)
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if cut.Load() && call.Name == "MergeEntity" {
				return azuritetest.ErrorResponse(req, http.StatusForbidden, "AuthorizationFailure"), nil
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "i", "e1", `"in"`)
		item := mustNext(t, h)
		cut.Store(true)
		err := item.Session.Commit(t.Context(), &provider.Checkpoint{
			Instance: item.Instance, NewEvents: episode(item.Messages, &history.ExecutionSuspended{Header: header(-1)}),
		})
		if releaseErr := item.Session.Release(t.Context()); err == nil || releaseErr != nil {
			t.Fatalf("Commit returned %v, want an error for the rejected row; Release returned %v", err, releaseErr)
		}
		if state, err := h.Instance(t.Context(), "i", provider.Fetch{}); err != nil || state.Status != history.Pending {
			t.Fatalf("the row is %+v, %v; want no write, because it was rejected", state, err)
		}
		cut.Store(false)
		patience.Until(t, "the row says that the instance is suspended", func() bool {
			state, err := h.Instance(t.Context(), "i", provider.Fetch{})
			return err == nil && state.Status == history.Suspended
		})
		patience.Until(t, "the consumed message is deleted", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
	})
}
