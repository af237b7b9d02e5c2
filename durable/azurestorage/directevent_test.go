package azurestorage

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// raising raises events for an instance concurrently. The channel receives the errors.
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

// idleInstance returns a hub with an instance that waits for messages.
func idleInstance(t *testing.T, id string) (h *TaskHub, stop func()) {
	return idleInstanceIn(t, testConfig(t), id)
}

// idleInstanceIn is idleInstance with a configuration.
func idleInstanceIn(t *testing.T, cfg Config, id string) (h *TaskHub, stop func()) {
	h, stop = serving(t, cfg)
	mustStart(t, h, id, "e1", `1`)
	item := mustNext(t, h)
	mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
	patience.Until(t, "the start message is gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
	return h, stop
}

// One of the events that a checkpoint consumes is in the queue until the row is written. The
// clients' calls return after that.
func TestDirectEvent_OneOfSeveralIsQueuedWhileTheHistoryIsWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "listener")
		done := raising(t.Context(), h, "listener", "a", "b", "c", "d")
		synctest.Wait()
		item := mustNext(t, h)
		if len(item.Messages) != 4 || messageCount(t, h.controlQueues[0]) != 0 || len(done) != 0 {
			t.Fatalf("delivered %s, %d messages in the queue, %d calls have returned; want four events, 0 and 0", eventTypes(item.Messages), messageCount(t, h.controlQueues[0]), len(done))
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
			t.Errorf("%d messages are in the queue after the checkpoint, want 0", n)
		}
	})
}

// A client does not wait for a busy instance.
func TestDirectEvent_IsEnqueuedWhenNoCheckpointConsumesIt(t *testing.T) {
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
			t.Errorf("%d messages, %d of them visible; want one hidden message", all, visible)
		}
		commitEnd(t, item, 0, `1`)
		patience.Until(t, "the message is gone after the checkpoint", func() bool { return messageCount(t, h.controlQueues[0]) == 0 && heldCount(h) == 0 })
	})
}

// A large event is enqueued without success. The inbox still has the event, so it occupies its slot.
func TestDirectEvent_KeepsItsSlotIfItsBlobCannotBeWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var broken atomic.Bool
		counter := newCounter(t)
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if broken.Load() && call.Service == "blob" && call.Name == "PutBlob" {
				return azuritetest.ErrorResponse(req, http.StatusBadRequest, "InvalidInput"), nil
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := idleInstanceIn(t, cfg, "busy")
		synctest.Wait()
		broken.Store(true)
		err := h.Send(t.Context(), provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: "busy"},
			Event:  &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "large", Input: new(`"` + strings.Repeat("x", 2*wire.LargeMessageThreshold) + `"`)},
		})
		broken.Store(false)
		if n := h.inUse()["reserved slots of control-queue messages"]; err == nil || n != 1 {
			t.Errorf("the call returned %v, and %d slots are in use; want an error and 1", err, n)
		}
	})
}

// An event that this process cannot commit is in the queue when the call returns.
func TestDirectEvent_IsEnqueuedWhenItCannotBeCommitted(t *testing.T) {
	t.Parallel()
	causes := maps.Clone(rejections)
	causes["the instance does not exist"] = func(*testing.T, *TaskHub, func()) {}
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				h, stop := idleInstance(t, "listener")
				id := "listener"
				if strings.HasSuffix(name, "not exist") {
					id = "nobody"
				}
				done := raising(t.Context(), h, id, "a")
				synctest.Wait()
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

// A checkpoint waits until a busy queue accepts the event that it consumes.
func TestDirectEvent_IsCommittedWhileTheQueueIsBusy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var refusals atomic.Int32
		cfg := testConfig(t)
		cfg.Transport = faulty(t, func(call azuritetest.Call) fault {
			if call.Name == "PutMessage" && refusals.Add(-1) >= 0 {
				return refuse
			}
			return pass
		})
		h, _ := idleInstanceIn(t, cfg, "listener")
		done := raising(t.Context(), h, "listener", "a")
		item := mustNext(t, h)
		refusals.Store(2)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if err := <-done; err != nil || refusals.Load() >= 0 {
			t.Errorf("error %v, want none; the queue has refused two messages: %v, want true", err, refusals.Load() < 0)
		}
	})
}

// An event whose commit has no clear result is delivered once.
func TestDirectEvent_OfACheckpointWithUnknownOutcomeIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "listener")
		done := raising(t.Context(), h, "listener", "a", "b")
		synctest.Wait()
		item := mustNext(t, h)
		s := item.Session.(*session)
		taken := s.Current
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		// The same events are sent as if the result of the checkpoint were unknown.
		for _, d := range taken {
			e, _, err := h.sender.NewDirect(&outbound.Message{To: h.partitions[0], Env: &wire.Envelope{Message: d.Env.Message, Sender: &history.OrchestrationInstance{}}})
			if err != nil {
				t.Fatal(err)
			}
			e.MarkMaybeCommitted()
			e.Release(t.Context(), 0)
			if err := e.Await(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if item, err := h.NextOrchestration(ctx); err == nil {
			t.Errorf("%s was delivered again", eventTypes(item.Messages))
		}
		if n := messageCount(t, h.controlQueues[0]); n != 0 {
			t.Errorf("%d messages are in the queue, want 0", n)
		}
	})
}

// The error of a call that is canceled says that the message may have been sent.
func TestDirectEvent_ACanceledCallSaysThatItMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := idleInstance(t, "listener")
		ctx, cancel := context.WithTimeout(t.Context(), outbound.EnqueueAfter/2)
		defer cancel()
		err := <-raising(ctx, h, "listener", "a")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the message may have been sent") {
			t.Errorf("error %v, want a timeout that says that the message may have been sent", err)
		}
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "EventRaised " {
			t.Errorf("delivered %s, want the event", eventTypes(item.Messages))
		}
		commitEnd(t, item, 0, `1`)
	})
}
