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

// starting starts an instance. The channel gets the error.
func starting(t *testing.T, h *TaskHub, start provider.TaskMessage) <-chan error {
	done := make(chan error, 1)
	go func() { done <- h.StartInstance(t.Context(), start, liveStatuses) }()
	synctest.Wait()
	return done
}

// inStartedBubble runs f in a bubble with a hub whose partition is being read.
func inStartedBubble(t *testing.T, f func(t *testing.T, h *TaskHub, stop func())) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, stop := idleInstance(t, "warm-up")
		f(t, h, stop)
	})
}

// The start of an instance that this process runs is in no queue. Its client is answered
// when the history has it, and not before.
func TestDirectStart_IsAnsweredWhenTheHistoryHasIt(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		done := starting(t, h, startMessage("i", "e1", `1`))
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "ExecutionStarted " || len(item.History) != 0 {
			t.Fatalf("%s came, after %d events; want the start of an instance", eventTypes(item.Messages), len(item.History))
		}
		if len(done) != 0 || runtimeStatus(t, h, "i") != history.Pending {
			t.Fatalf("%d calls have returned, it is %v; want none, and the row", len(done), runtimeStatus(t, h, "i"))
		}
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if logged(h, "SendingMessage", "instanceId=i ") {
			t.Error("a message was sent")
		}
		if err := <-starting(t, h, startMessage("i", "e2", `1`)); err == nil {
			t.Error("another start with its ID was not refused")
		}
	})
}

// A client does not wait for a place that is not free.
func TestDirectStart_IsPutIntoTheQueueWhenNoCheckpointTakesIt(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		begin := time.Now()
		if err := <-starting(t, h, startMessage("i", "e1", `1`)); err != nil || time.Since(begin) > time.Second {
			t.Errorf("the call returned %v after %v", err, time.Since(begin))
		}
		if all, visible := messageCount(t, h.controlQueues[0]), visibleMessages(t, h.controlQueues[0]); all != 1 || visible != 0 {
			t.Errorf("%d messages of which %d are visible, want one that is hidden", all, visible)
		}
		commitEnd(t, mustNext(t, h), 0, `1`)
		patience.Until(t, "the message is gone after the checkpoint", func() bool { return messageCount(t, h.controlQueues[0]) == 0 && heldCount(h) == 0 })
	})
}

// What this process cannot take after all is in the queue when the call returns.
func TestDirectStart_IsSentWhenItCannotBeTaken(t *testing.T) {
	for name, cause := range givenBack {
		t.Run(name, func(t *testing.T) {
			inStartedBubble(t, func(t *testing.T, h *TaskHub, stop func()) {
				done := starting(t, h, startMessage("i", "e1", `1`))
				cause(t, h, stop)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := messageCount(t, h.controlQueues[0]); n != 1 || heldCount(h) != 0 {
					t.Errorf("%d messages are in the queue, %d held; want the start, and none", n, heldCount(h))
				}
			})
		})
	}
}

// The client whose row is being inserted when the worker stops is not told that it stops: its
// start is sent once the row is there.
func TestDirectStart_IsSentWhenTheWorkerStopsBeforeTheRowIsThere(t *testing.T) {
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
			t.Errorf("%d messages of which %d are visible, want the start", all, visible)
		}
	})
}

// A start that the history has is sent if the row could not be written: who receives it
// repairs the row, and begins nothing.
func TestDirectStart_IsSentToRepairTheRow(t *testing.T) {
	inStartedBubble(t, func(t *testing.T, h *TaskHub, _ func()) {
		done := starting(t, h, startMessage("i", "e1", `1`))
		item := mustNext(t, h)
		taken := item.Session.(*session).current[0]
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		mustMerge(t, h, "i", "", history.Pending)
		h.instances.Forget("i")
		taken.markCommitted()
		if !taken.direct.enqueueUnlessDone(t.Context(), 0) {
			t.Fatal("it is not sent")
		}
		patience.Until(t, "the row is repaired", func() bool { return runtimeStatus(t, h, "i") == history.Running })
		patience.Until(t, "the message is gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
		if !logged(h, "DuplicateMessageDetected", "instanceId=i ") {
			t.Error("the start was not known")
		}
	})
}

// A start that is to wait, or that is large, goes through the queue: its row names the blob.
func TestDirectStart_IsNotOneThatIsDueLaterOrLarge(t *testing.T) {
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
