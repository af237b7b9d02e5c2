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

// serving runs a hub whose worker has seen that its queues are empty, so that
// it claims what it sends to itself. Messages stay hidden for long enough even if
// renewals are slow.
func serving(t testing.TB, cfg Config) (h *TaskHub, stop func()) {
	if cfg.LeaseInterval == testConfig(t).LeaseInterval {
		cfg.LeaseInterval = 30 * time.Second
	}
	h = openHub(t, cfg)
	stop = runHub(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan struct{})
	go func() { // somebody who would run activities
		defer close(waiting)
		_, _ = h.NextActivity(ctx)
	}()
	patience.Until(t, "the queues were found empty", func() bool {
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

// While a message is worked on that was never received it is in its queue, for
// whoever takes over, and hidden.
func TestClaim_IsInItsQueueAndHidden(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := serving(t, cfg)
		mustStart(t, h, "claimed", "e1", `1`)
		item := mustNext(t, h)
		if all, visible := messageCount(t, h.controlQueues[0]), visibleMessages(t, h.controlQueues[0]); all != 1 || visible != 0 {
			t.Errorf("%d start messages of which %d are visible, want one that is hidden", all, visible)
		}
		commitActivity(t, item, 0, `["a"]`)
		activity := mustActivity(t, h)
		if all, visible := messageCount(t, h.workItems), visibleMessages(t, h.workItems); all != 1 || visible != 0 || activity.Attempt != 1 {
			t.Errorf("%d work items of which %d are visible, attempt %d; want the first of one that is hidden", all, visible, activity.Attempt)
		}
		if n := counter.Total(func(c azuritetest.Call) bool { return c.Name == "GetMessages" }); n != 0 {
			t.Errorf("%d messages were received, want all to be handed over in memory:\n%s", n, counter)
		}
		if err := activity.Lock.Abandon(t.Context(), errLost); err != nil {
			t.Fatal(err)
		}
	})
}

// A claimed message stays hidden for as long as this process has it.
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
			t.Errorf("%d messages are visible while they are worked on", n)
		}
		commitEnd(t, item, 0, `1`)
	})
}

// What was claimed when the worker stopped becomes visible at once.
func TestClaim_BecomesVisibleWhenItCannotBeHandedOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, stop := serving(t, testConfig(t))
		activity := &provider.TaskMessage{Event: &history.TaskScheduled{Header: header(0), Name: "A"}, Target: history.OrchestrationInstance{InstanceID: "i"}}
		raised := &provider.TaskMessage{Event: &history.EventRaised{Header: header(-1), Name: "E"}, Target: history.OrchestrationInstance{InstanceID: "i"}}
		out := []*outgoing{
			{queue: h.workItems, env: &wire.Envelope{Message: activity, Sender: &activity.Target}},
			{queue: h.controlQueues[0], partition: h.partitions[0], env: &wire.Envelope{Message: raised, Sender: &history.OrchestrationInstance{}}},
		}
		h.sender.reserve(out)
		var sent []sentMessage
		for _, o := range out {
			m, err := h.sender.post(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if m.claimed == nil {
				t.Fatalf("the message to %s was not claimed", o.queue.Name)
			}
			sent = append(sent, m)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		patience.Until(t, "nothing is read any more", func() bool {
			h.activities.mu.Lock()
			defer h.activities.mu.Unlock()
			return h.activities.closed && h.partitions[0].currentReading() == nil
		})
		h.sender.handOver(t.Context(), sent)
		<-stopped // a receive that was under way may have got it, and hands it back
		for _, q := range []*store.Queue{h.workItems, h.controlQueues[0]} {
			if n := visibleMessages(t, q); n != 1 {
				t.Errorf("%d messages are visible in %s, want the one that was claimed", n, q.Name)
			}
		}
	})
}

// A checkpoint whose fate is unknown leaves its messages to whoever finds out.
func TestClaim_BecomesVisibleWhenTheFateOfItsCheckpointIsUnknown(t *testing.T) {
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
			t.Fatalf("error %v, want one that leaves open what happened", err)
		}
		if n := visibleMessages(t, h.workItems); n != 1 {
			t.Errorf("%d work items are visible, want the one that the checkpoint sent", n)
		}
		cut.Store(false)
		if err := errors.Join(item.Session.Abandon(t.Context(), err), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClaim_DoesNotOvertakeWhatIsInTheQueue(t *testing.T) {
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
		for range 6 { // room for two, so that the others have to wait in the queue
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
			for range min(len(item.Messages), len(all)-sent) { // there is room again, and no reason to take it
				send()
			}
			if len(names) < len(all) {
				item = mustNext(t, h)
			}
		}
		if got := strings.Join(names, ""); got != all {
			t.Errorf("events came in the order %s", got)
		}
	})
}

func TestBacklog_IsEmptyOnlyAfterALookThatFoundLessThanItAskedFor(t *testing.T) {
	t.Parallel()
	b := backlog{adds: 1}
	if b.isEmpty() {
		t.Error("empty before the first look")
	}
	before := b.snapshot()
	b.hint() // a message was sent while the look was under way
	if b.polled(before, 0, 32); b.isEmpty() {
		t.Error("empty although a message was sent during the look")
	}
	if b.polled(b.snapshot(), 32, 32); b.isEmpty() {
		t.Error("empty although the look found all that it asked for")
	}
	if b.polled(b.snapshot(), 31, 32); !b.isEmpty() {
		t.Error("not empty after a look that found the rest")
	}
}

// An instance that was purged after its start was handed out stays away, though
// there never was a history to find changed.
func TestClaim_OfAPurgedInstanceDoesNotBringItBack(t *testing.T) {
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
		sess.current[0].lost = true // as of a process that was frozen meanwhile
		sess.current[0].mu.Unlock()
		err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		if !errors.Is(err, provider.ErrSessionLost) {
			t.Errorf("error %v, want ErrSessionLost", err)
		}
		if err := errors.Join(item.Session.Abandon(t.Context(), errLost), item.Session.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Instance(t.Context(), "purged", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
			t.Errorf("the purged instance is back: %v", err)
		}
	})
}

// A message that is handed back may be received again before the answer to that
// comes. It is then not taken for one that is here.
func TestHeldMessages_TakesWhatComesBackWhileItIsHandedBack(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	m := store.Message{ID: "1", Receipt: "a", DequeueCount: 1}
	settled := 0
	first := h.held.newDelivery(h.workItems, m, time.Minute, func() { settled++ })
	if older := h.held.add(first); older != nil {
		t.Fatal("the first was here before")
	}
	again := h.held.newDelivery(h.workItems, m, time.Minute, func() {})
	if older := h.held.add(again); older != first {
		t.Error("a message that is here was taken for another")
	}
	first.releasing = true
	if older := h.held.add(again); older != nil {
		t.Error("a message that is handed back was taken for one that is here")
	}
	first.settle()
	if n := heldCount(h); n != 1 || settled != 1 {
		t.Errorf("%d messages are held, want the one that came back", n)
	}
}
