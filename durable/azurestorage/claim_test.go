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
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
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
		h.activities.mu.Lock()
		defer h.activities.mu.Unlock()
		p := h.partitions[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		return h.activities.backlog.isEmpty() && p.backlog.isEmpty() && p.reading != nil
	})
	cancel()
	<-waiting
	return h, stop
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
		out := []*outgoing{
			{to: h.activities, env: &wire.Envelope{Message: activity, Sender: &activity.Target}},
			{to: h.partitions[0], env: &wire.Envelope{Message: raised, Sender: &history.OrchestrationInstance{}}},
		}
		h.sender.reserve(out)
		var sent []sentMessage
		for _, o := range out {
			m, err := h.sender.post(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if m.claimed == nil {
				t.Fatalf("the message to %s was not claimed", o.to.Queue().Name)
			}
			sent = append(sent, m)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		patience.Until(t, "the worker has stopped reading its queues", func() bool {
			h.activities.mu.Lock()
			defer h.activities.mu.Unlock()
			return h.activities.closed && h.partitions[0].currentReading() == nil
		})
		h.sender.handOver(t.Context(), sent)
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

func TestBacklog_IsEmptyOnlyAfterAPollThatReceivesFewerMessagesThanRequested(t *testing.T) {
	t.Parallel()
	b := backlog{hints: 1}
	if b.isEmpty() {
		t.Error("empty before the first poll")
	}
	before := b.snapshot()
	b.hint() // a message was sent during the poll
	if b.polled(before, 0, 32); b.isEmpty() {
		t.Error("empty although a message was sent during the poll")
	}
	if b.polled(b.snapshot(), 32, 32); b.isEmpty() {
		t.Error("empty although the poll received as many messages as it asked for")
	}
	if b.polled(b.snapshot(), 31, 32); !b.isEmpty() {
		t.Error("not empty after a poll that received fewer messages than it asked for")
	}
}

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
		sess.current[0].mu.Lock()
		sess.current[0].lost = true // as if the process had been frozen
		sess.current[0].mu.Unlock()
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

// A message that is being released can be received again before the release request returns. It is
// then a new delivery.
func TestHeldMessages_AcceptsAMessageThatIsReceivedAgainDuringItsRelease(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	m := store.Message{ID: "1", Receipt: "a", DequeueCount: 1}
	settled := 0
	first := h.held.newDelivery(h.workItems, m, time.Minute, func() { settled++ })
	if older := h.held.add(first); older != nil {
		t.Fatal("the first delivery is a duplicate")
	}
	again := h.held.newDelivery(h.workItems, m, time.Minute, func() {})
	if older := h.held.add(again); older != first {
		t.Error("a second delivery of a held message is not recognized as a duplicate")
	}
	first.releasing = true
	if older := h.held.add(again); older != nil {
		t.Error("a delivery of a message that is being released is a duplicate")
	}
	first.settle()
	if n := heldCount(h); n != 1 || settled != 1 {
		t.Errorf("%d messages are held, want the redelivered one", n)
	}
}
