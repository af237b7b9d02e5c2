package azurestorage

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/outbound"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// serving runs a hub until its worker has found its queues empty, so that it claims its own
// messages. The lease interval is long enough for slow renewals.
func serving(t testing.TB, cfg Config) (h *TaskHub, stop func()) {
	if cfg.LeaseInterval == testConfig(t).LeaseInterval {
		cfg.LeaseInterval = 30 * time.Second
	}
	h = openHub(t, cfg)
	stop = runHub(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan struct{})
	go func() { // a caller of NextActivity, as a waiting worker has
		defer close(waiting)
		_, _ = h.NextActivity(ctx)
	}()
	patience.Until(t, "the worker has found its queues empty", func() bool {
		return claims(h.activities) && claims(h.partitions[0])
	})
	cancel()
	<-waiting
	return h, stop
}

// claims reports whether this process would deliver a message to the queue in memory.
func claims(to outbound.Destination) bool {
	if to.Claim(1) == 0 {
		return false
	}
	to.Unclaim()
	return true
}

// A claimed message is in its queue, hidden, while it is processed, so that another worker can take
// over.
func TestClaim_StaysHiddenInItsQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := serving(t, cfg)
		mustStart(t, h, "claimed", "e1", `1`)
		item := mustNext(t, h)
		if all, visible := messageCount(t, h.controlQueues[0]), visibleMessages(t, h.controlQueues[0]); all != 1 || visible != 0 {
			t.Errorf("%d start messages, %d of them visible; want one hidden message", all, visible)
		}
		commitActivity(t, item, 0, `["a"]`)
		activity := mustActivity(t, h)
		if all, visible := messageCount(t, h.workItems), visibleMessages(t, h.workItems); all != 1 || visible != 0 || activity.Attempt != 1 {
			t.Errorf("%d work items, %d of them visible, attempt %d; want one hidden item and attempt 1", all, visible, activity.Attempt)
		}
		if n := counter.Total(func(c azuritetest.Call) bool { return c.Name == "GetMessages" }); n != 0 {
			t.Errorf("%d receives, want all messages delivered in memory:\n%s", n, counter)
		}
		if err := activity.Lock.Abandon(t.Context(), errLost); err != nil {
			t.Fatal(err)
		}
	})
}

// The visibility timeout of a claimed message is renewed as long as this process holds it.
func TestClaim_IsRenewed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.LeaseInterval = 8 * time.Second
		h, _ := serving(t, cfg)
		mustStart(t, h, "slow", "e1", `1`)
		item := mustNext(t, h)
		patience.Until(t, "the start was renewed twice", func() bool {
			c := h.cfg.Logger.Handler().(*logCapture)
			c.mu.Lock()
			defer c.mu.Unlock()
			return strings.Count(strings.Join(*c.lines, ""), "RenewingMessage") >= 2
		})
		if n := visibleMessages(t, h.controlQueues[0]); n != 0 {
			t.Errorf("%d messages are visible while they are processed, want 0", n)
		}
		commitEnd(t, item, 0, `1`)
	})
}

// When the worker stops, claimed messages become visible immediately.
func TestClaim_IsReleasedWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, stop := serving(t, testConfig(t))
		activity := &provider.TaskMessage{Event: &history.TaskScheduled{Header: header(0), Name: "A"}, Target: history.OrchestrationInstance{InstanceID: "i"}}
		raised := &provider.TaskMessage{Event: &history.EventRaised{Header: header(-1), Name: "E"}, Target: history.OrchestrationInstance{InstanceID: "i"}}
		out := []*outbound.Message{
			{To: h.activities, Env: &wire.Envelope{Message: activity, Sender: &activity.Target}},
			{To: h.partitions[0], Env: &wire.Envelope{Message: raised, Sender: &history.OrchestrationInstance{}}},
		}
		h.sender.Reserve(out)
		var sent []outbound.Sent
		for _, o := range out {
			m, err := h.sender.Post(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if m.Claimed == nil {
				t.Fatalf("the message to %s was not claimed", o.To.Queue().Name)
			}
			sent = append(sent, m)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		patience.Until(t, "the worker has stopped reading its queues", func() bool {
			return !claims(h.activities) && !h.partitions[0].IsReading()
		})
		h.sender.HandOver(t.Context(), sent)
		<-stopped // a pending receive may have got a message, and releases it
		for _, q := range []*store.Queue{h.workItems, h.controlQueues[0]} {
			if n := visibleMessages(t, q); n != 1 {
				t.Errorf("%d messages are visible in %s, want the claimed one", n, q.Name)
			}
		}
	})
}

// If the outcome of a checkpoint is unknown, its messages become visible: their receivers check the
// history.
func TestClaim_IsReleasedWhenTheOutcomeOfItsCheckpointIsUnknown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var cut atomic.Bool
		counter := newCounter(t)
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if cut.Load() && call.Service == "table" {
				return nil, errors.New("the test cut the connection")
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := serving(t, cfg)
		mustStart(t, h, "unknown", "e1", `1`)
		item := mustNext(t, h)
		ev, msg := schedule(item, 0, `["x"]`)
		cut.Store(true)
		err := item.Session.Commit(t.Context(), &provider.Checkpoint{
			Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg},
		})
		if err == nil || errors.Is(err, provider.ErrSessionLost) {
			t.Fatalf("error %v, want one with an unknown outcome", err)
		}
		if n := visibleMessages(t, h.workItems); n != 1 {
			t.Errorf("%d work items are visible, want the one sent by the checkpoint", n)
		}
		cut.Store(false)
		if err := errors.Join(item.Session.Abandon(t.Context(), err), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClaim_DoesNotOvertakeQueuedMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.ControlQueueBufferThreshold, cfg.ControlQueueBatchSize = 3, 1
		h, _ := serving(t, cfg)
		mustStart(t, h, "listener", "e1", `1`)
		item := mustNext(t, h)
		const all = "abcdefghijkl"
		sent := 0
		send := func() {
			raise(t, h, "listener", all[sent:sent+1], `1`)
			sent++
		}
		for range 6 { // two slots are free, so the other events must wait in the queue
			send()
		}
		var names []string
		for len(names) < len(all) {
			for _, m := range item.Messages {
				if ev, ok := m.Event.(*history.EventRaised); ok {
					names = append(names, ev.Name)
				}
			}
			mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
			for range min(len(item.Messages), len(all)-sent) { // slots are free again, but the queue is not empty
				send()
			}
			if len(names) < len(all) {
				item = mustNext(t, h)
			}
		}
		if got := strings.Join(names, ""); got != all {
			t.Errorf("events were delivered in the order %s", got)
		}
	})
}

// lost is the safety of a message that another worker may have received.
type lost struct{ inflight.Safety }

func (lost) IsLost(clocks.Moment) bool { return true }

// An instance that was purged after its start was dispatched is not created again, although there
// was no history that could have changed.
func TestClaim_OfAPurgedInstanceDoesNotCreateItAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, _ := serving(t, testConfig(t))
		mustStart(t, h, "purged", "e1", `1`)
		item := mustNext(t, h)
		if err := h.Purge(t.Context(), "purged", nil); err != nil {
			t.Fatal(err)
		}
		sess := item.Session.(*session)
		sess.Current[0].Safety = lost{sess.Current[0].Safety} // as if the process had been frozen
		err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if !errors.Is(err, provider.ErrSessionLost) {
			t.Errorf("error %v, want ErrSessionLost", err)
		}
		if err := errors.Join(item.Session.Abandon(t.Context(), errLost), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Instance(t.Context(), "purged", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
			t.Errorf("the purged instance exists: %v", err)
		}
	})
}
