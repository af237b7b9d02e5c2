package azurestorage

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// starting starts an instance in the background. The channel receives the error.
func starting(t *testing.T, h *TaskHub, start provider.TaskMessage) <-chan error {
	done := make(chan error, 1)
	go func() { done <- h.StartInstance(t.Context(), start, liveStatuses) }()
	synctest.Wait()
	return done
}

// inStartedBubble runs f in a bubble with a hub that reads its partition.
func inStartedBubble(t *testing.T, f func(t *testing.T, h *TaskHub, stop func())) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, stop := idleInstance(t, "warm-up")
		f(t, h, stop)
	})
}

// The start of an instance that this process runs is in no queue. The client's call returns when
// the history has it, not earlier.
func TestDirectStart_ReturnsWhenTheHistoryHasIt(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		done := starting(t, h, startMessage("i", "e1", `1`))
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "ExecutionStarted " || len(item.History) != 0 {
			t.Fatalf("delivered %s with %d past events; want a start without history", eventTypes(item.Messages), len(item.History))
		}
		if len(done) != 0 || runtimeStatus(t, h, "i") != history.Pending {
			t.Fatalf("%d calls have returned, the status is %v; want 0 and Pending", len(done), runtimeStatus(t, h, "i"))
		}
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if logged(h, "SendingMessage", "instanceId=i ") {
			t.Error("a message was sent")
		}
		if err := <-starting(t, h, startMessage("i", "e2", `1`)); err == nil {
			t.Error("another start with the same ID succeeded")
		}
	})
}

// A client does not wait until an orchestration slot is free.
func TestDirectStart_IsEnqueuedWhenNoCheckpointConsumesIt(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		begin := time.Now()
		if err := <-starting(t, h, startMessage("i", "e1", `1`)); err != nil || time.Since(begin) > time.Second {
			t.Errorf("the call returned %v after %v", err, time.Since(begin))
		}
		if all, visible := messageCount(t, h.controlQueues[0]), visibleMessages(t, h.controlQueues[0]); all != 1 || visible != 0 {
			t.Errorf("%d messages, %d of them visible; want one hidden message", all, visible)
		}
		commitEnd(t, mustNext(t, h), 0, `1`)
		patience.Until(t, "the message is gone after the checkpoint", func() bool { return messageCount(t, h.controlQueues[0]) == 0 && heldCount(h) == 0 })
	})
}

// A start that this process cannot commit is in the queue when the call returns.
func TestDirectStart_IsEnqueuedWhenItCannotBeCommitted(t *testing.T) {
	for name, cause := range rejections {
		t.Run(name, func(t *testing.T) {
			inStartedBubble(t, func(t *testing.T, h *TaskHub, stop func()) {
				done := starting(t, h, startMessage("i", "e1", `1`))
				cause(t, h, stop)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := messageCount(t, h.controlQueues[0]); n != 1 || heldCount(h) != 0 {
					t.Errorf("%d messages in the queue, %d held; want 1 and 0", n, heldCount(h))
				}
			})
		})
	}
}

// If the worker stops while a client inserts the row, the client's call succeeds: the start is sent
// after the insert.
func TestDirectStart_IsEnqueuedWhenTheWorkerStopsBeforeTheRowIsInserted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		inserting, inserted := make(chan struct{}), make(chan struct{})
		counter.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "InsertEntity" && strings.HasSuffix(call.Target, "Instances") {
				close(inserting)
				<-inserted
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, stop := serving(t, cfg)
		done := starting(t, h, startMessage("i", "e1", `1`))
		<-inserting
		stop()
		close(inserted)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if all, visible := messageCount(t, h.controlQueues[0]), visibleMessages(t, h.controlQueues[0]); all != 1 || visible != 1 {
			t.Errorf("%d messages, %d of them visible; want the visible start", all, visible)
		}
	})
}

// A committed start is sent if its row could not be written. Its receiver repairs the row and does
// not start the instance again.
func TestDirectStart_IsEnqueuedToRepairTheRow(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		done := starting(t, h, startMessage("i", "e1", `1`))
		item := mustNext(t, h)
		taken := item.Session.(*session).Current[0]
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		mustMerge(t, h, "i", "", history.Pending)
		h.instances.Evict("i")
		taken.MarkCommitted()
		taken.Release(t.Context(), 0)
		patience.Until(t, "the row is repaired", func() bool { return runtimeStatus(t, h, "i") == history.Running })
		patience.Until(t, "the message is gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
		if !logged(h, "DuplicateMessageDetected", "instanceId=i ") {
			t.Error("the start was not recognized as a duplicate")
		}
	})
}

// A scheduled start goes through the queue, and so does a large start, whose row names the blob.
func TestDirectStart_IsNotUsedForScheduledOrLargeStarts(t *testing.T) {
	later := startMessage("later", "e1", `1`)
	later.Event.(*history.ExecutionStarted).ScheduledStart = time.Now().Add(200 * 365 * 24 * time.Hour)
	for name, start := range map[string]provider.TaskMessage{"later": later, "large": startMessage("large", "e1", large)} {
		t.Run(name, func(t *testing.T) {
			inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
				if err := <-starting(t, h, start); err != nil {
					t.Error(err)
				}
				if n := messageCount(t, h.controlQueues[0]); n != 1 {
					t.Errorf("%d messages are in the queue, want the start", n)
				}
			})
		})
	}
}
