package azurestorage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// raising raises events for an instance, at once. The channel gets the errors.
func raising(ctx context.Context, h *TaskHub, id string, names ...string) <-chan error {
	done := make(chan error, len(names))
	for _, name := range names {
		go func() {
			done <- h.Send(ctx, provider.TaskMessage{
				Target: history.OrchestrationInstance{InstanceID: id},
				Event:  &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name, Input: new(`1`)},
			})
		}()
	}
	return done
}

// idleInstance returns a hub with an instance that waits.
func idleInstance(t *testing.T, id string) (h *TaskHub, stop func()) {
	h, stop = serving(t, testConfig(t))
	mustStart(t, h, id, "e1", `1`)
	item := mustNext(t, h)
	mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
	patience.Until(t, "the start message is gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
	return h, stop
}

// Of the events that a checkpoint takes one is in the queue until the row is written, and
// the clients are answered after it.
func TestDirectEvent_OneOfManyIsInTheQueueWhileTheHistoryIsWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "listener")
		done := raising(t.Context(), h, "listener", "a", "b", "c", "d")
		synctest.Wait()
		item := mustNext(t, h)
		if len(item.Messages) != 4 || messageCount(t, h.controlQueues[0]) != 0 || len(done) != 0 {
			t.Fatalf("%s came, %d messages are in the queue and %d calls have returned; want all four events, and neither", eventTypes(item.Messages), messageCount(t, h.controlQueues[0]), len(done))
		}
		before := len(*h.cfg.Logger.Handler().(*logCapture).lines)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		var did []string
		for _, line := range (*h.cfg.Logger.Handler().(*logCapture).lines)[before:] {
			for _, what := range []string{"SendingMessage", "AppendedInstanceHistory"} {
				if strings.Contains(line, what) {
					did = append(did, what)
				}
			}
		}
		if want := []string{"SendingMessage", "AppendedInstanceHistory"}; !slices.Equal(did, want) {
			t.Errorf("the checkpoint did %v, want %v", did, want)
		}
		if n := messageCount(t, h.controlQueues[0]); n != 0 {
			t.Errorf("%d messages are in the queue after the checkpoint", n)
		}
	})
}

// A client does not wait for an instance that is busy.
func TestDirectEvent_IsPutIntoTheQueueWhenNoCheckpointTakesIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "busy")
		done := raising(t.Context(), h, "busy", "a")
		item := mustNext(t, h)
		begin := time.Now()
		if err := <-done; err != nil || time.Since(begin) > time.Second {
			t.Errorf("the call returned %v after %v", err, time.Since(begin))
		}
		if all, visible := messageCount(t, h.controlQueues[0]), visibleMessages(t, h.controlQueues[0]); all != 1 || visible != 0 {
			t.Errorf("%d messages of which %d are visible, want one that is hidden", all, visible)
		}
		commitEnd(t, item, 0, `1`)
		patience.Until(t, "the message is gone after the checkpoint", func() bool { return messageCount(t, h.controlQueues[0]) == 0 && heldCount(h) == 0 })
	})
}

// What this process cannot take after all is in the queue when the call returns.
func TestDirectEvent_IsSentWhenItCannotBeTaken(t *testing.T) {
	t.Parallel()
	causes := maps.Clone(givenBack)
	causes["the instance is not there"] = func(*testing.T, *TaskHub, func()) {}
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				h, stop := idleInstance(t, "listener")
				id := "listener"
				if strings.HasSuffix(name, "not there") {
					id = "nobody"
				}
				done := raising(t.Context(), h, id, "a")
				synctest.Wait()
				cause(t, h, stop)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := messageCount(t, h.controlQueues[0]); n != 1 || heldCount(h) != 0 {
					t.Errorf("%d messages are in the queue, %d held; want the event, and none", n, heldCount(h))
				}
			})
		})
	}
}

// An event that may be in the history is not taken a second time.
func TestDirectEvent_OfACheckpointInDoubtIsTakenOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "listener")
		done := raising(t.Context(), h, "listener", "a", "b")
		synctest.Wait()
		item := mustNext(t, h)
		s := item.Session.(*session)
		taken := s.current
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		// The same events come as if it had not become known that the checkpoint counts.
		for _, d := range taken {
			e := &directDelivery{d: d, out: d.direct.out, outcome: make(chan error, 1), mu: make(chan struct{}, 1), maybeCommitted: true}
			if !e.enqueueUnlessDone(t.Context(), 0) || <-e.outcome != nil {
				t.Fatal("the event is not sent")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if item, err := h.NextOrchestration(ctx); err == nil {
			t.Errorf("%s came again", eventTypes(item.Messages))
		}
		if n := messageCount(t, h.controlQueues[0]); n != 0 {
			t.Errorf("%d messages are in the queue", n)
		}
	})
}

// A call that ends early says what is not known.
func TestDirectEvent_ACallThatEndsSaysThatItMayHaveArrived(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "listener")
		ctx, cancel := context.WithTimeout(t.Context(), enqueueAfter/2)
		defer cancel()
		err := <-raising(ctx, h, "listener", "a")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the message may have been sent") {
			t.Errorf("the error is %v", err)
		}
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "EventRaised " {
			t.Errorf("%s came", eventTypes(item.Messages))
		}
		commitEnd(t, item, 0, `1`)
	})
}
