package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func raise(t testing.TB, h *TaskHub, id, name, payload string) {
	t.Helper()
	err := h.Send(t.Context(), provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: id},
		Event:  &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name, Input: &payload},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func terminate(t testing.TB, h *TaskHub, id, reason string) {
	t.Helper()
	err := h.Send(t.Context(), provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: id},
		Event:  &history.ExecutionTerminated{Header: history.NewHeader(time.Now()), Reason: &reason},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func eventTypes(messages []provider.TaskMessage) string {
	text := ""
	for _, m := range messages {
		text += m.Event.Type().String() + " "
	}
	return text
}

func TestControlQueue_HoldsBackAnEventUntilTheInstanceHasStarted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		start := startMessage("later", "e1", `1`)
		due := time.Now().Add(3 * time.Second)
		start.Event.(*history.ExecutionStarted).ScheduledStart = due
		if err := h.StartInstance(t.Context(), start, nil); err != nil {
			t.Fatal(err)
		}
		raise(t, h, "later", "go", `"early"`)
		item := mustNext(t, h)
		if early := time.Until(due); early > 0 {
			t.Errorf("the start was dispatched %v before it was due", early)
		}
		if _, ok := item.Messages[0].Event.(*history.ExecutionStarted); !ok {
			t.Fatalf("messages %s, want the start first", eventTypes(item.Messages))
		}
		got := len(item.Messages)
		commitActivity(t, item, 0, `["x"]`)
		if got == 1 {
			if item = mustNext(t, h); eventTypes(item.Messages) != "EventRaised " {
				t.Fatalf("messages %s, want the event", eventTypes(item.Messages))
			}
			commitEnd(t, item, 1, `1`)
		}
		if !logged(h, "ReceivedOutOfOrderMessage", "EventRaised", "has not started yet", "delay=") {
			t.Error("the early event was not logged")
		}
		if logged(h, "AbandoningMessage") {
			t.Error("a held-back message was logged twice")
		}
	})
}

func TestControlQueue_DoesNotStartATerminatedInstance(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		start := startMessage("doomed", "e1", `1`)
		start.Event.(*history.ExecutionStarted).ScheduledStart = time.Now().Add(time.Hour)
		if err := h.StartInstance(t.Context(), start, nil); err != nil {
			t.Fatal(err)
		}
		terminate(t, h, "doomed", "not needed")
		patience.Until(t, "the instance is terminated", func() bool {
			state, err := h.Instance(t.Context(), "doomed", provider.Fetch{Output: true})
			return err == nil && state.Status == history.Terminated && store.Value(state.Output) == "not needed"
		})
		due := startMessage("doomed", "e1", `1`)
		if _, err := h.sender.Send(t.Context(), h.partitions[0], &wire.Envelope{Message: &due, Sender: &history.OrchestrationInstance{}}); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the start is discarded when it is due", func() bool {
			return logged(h, "DiscardingWorkItem", "ExecutionStarted", "Instance is Terminated")
		})
		patience.Until(t, "the queue holds only the start that is not due", func() bool { return messageCount(t, h.controlQueues[0]) == 1 })
	})
}

func TestControlQueue_DiscardsMessagesToUnknownInstances(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		raise(t, h, "ghost", "boo", `1`)
		terminate(t, h, "phantom", "now")
		patience.Until(t, "both messages are gone", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
		for _, id := range []string{"ghost", "phantom"} {
			if !logged(h, "level=WARN", "DiscardingWorkItem", "No such instance", id) {
				t.Errorf("the message for %s was not logged", id)
			}
		}
		if _, err := h.Instance(t.Context(), "phantom", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
			t.Errorf("the terminate message created a row: %v", err)
		}
	})
}

func TestControlQueue_AbandonsUndecodableMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "fine", "e1", `1`)
		if _, err := h.controlQueues[0].Put(t.Context(), "{not a message", 0, false); err != nil {
			t.Fatal(err)
		}
		if _, err := h.workItems.Put(t.Context(), "neither is this", 0, false); err != nil {
			t.Fatal(err)
		}
		runHello(t, h, "Tokyo")
		patience.Until(t, "the bad message was received twice", func() bool {
			return logged(h, "level=DEBUG", "AbandoningMessage", "dequeueCount=1", "delay=2s") && logged(h, "level=DEBUG", "AbandoningMessage", "dequeueCount=2", "delay=4s")
		})
		if !logged(h, "level=ERROR", "MessageFailure", h.controlQueues[0].Name) || !logged(h, "level=ERROR", "MessageFailure", h.workItems.Name) {
			t.Error("the bad messages were not logged")
		}
		if logged(h, "MessageFailure", "dequeueCount=2") || len(h.Undecodable()) != 2 {
			t.Errorf("the bad messages were logged again, or %+v does not have both", h.Undecodable())
		}
		patience.Until(t, "only the bad message is left, for another worker", func() bool { return messageCount(t, h.controlQueues[0]) == 1 })
	})
}

func TestControlQueue_SetsUndecodableMessagesAsideIfConfigured(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.SetAsideUndecodable = true
		h := openHub(t, cfg)
		if err := h.resources.ensureCreated(t.Context()); err != nil {
			t.Fatal(err)
		}
		const text = "{<not> & a message"
		q := h.controlQueues[0]
		if _, err := q.Put(t.Context(), text, 0, false); err != nil {
			t.Fatal(err)
		}
		for range 9 { // earlier receives
			messages, err := q.Receive(t.Context(), 1, time.Minute)
			if err != nil || len(messages) != 1 {
				t.Fatalf("received %v, %v", messages, err)
			}
			if _, err := q.Update(t.Context(), messages[0], 0); err != nil {
				t.Fatal(err)
			}
		}
		runHub(t, h)
		patience.Until(t, "the message is set aside", func() bool {
			m := h.Undecodable()
			return len(m) == 1 && m[0].SetAside && messageCount(t, q) == 0
		})
		if err := h.Check(t.Context()); err != nil || len(h.Undecodable()) != 1 {
			t.Errorf("%v; undecodable are %+v, want the message that was set aside", err, h.Undecodable())
		}
		if n, err := h.RetryUndecodable(t.Context()); n != 1 || err != nil {
			t.Errorf("RetryUndecodable moved %d messages, %v; want 1", n, err)
		}
		patience.Until(t, "the unchanged message is back in its queue", func() bool {
			peeked, err := q.Client.PeekMessages(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return messageCount(t, q) == 1 && (len(peeked.Messages) == 0 || store.Value(peeked.Messages[0].MessageText) == text)
		})
		if n := messageCount(t, h.aside(q.Name)); n != 0 {
			t.Errorf("%d messages are still set aside", n)
		}
		if logged(h, "part of the task hub was deleted") {
			t.Error("a missing poison queue was mistaken for a deleted part of the hub")
		}
	})
}

func TestSession_HoldsBackACompletionUntilTheHistoryHasItsTask(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "fast", "e1", `1`)
		item := mustNext(t, h)
		// The result of an activity arrives before this episode schedules the activity, as if
		// another worker without the session had run it.
		target := item.Instance
		ahead := provider.TaskMessage{Target: target, Event: &history.TaskCompleted{Header: header(-1), TaskScheduledID: 1, Result: new(`"soon"`)}}
		if _, err := h.sender.Send(t.Context(), h.partitions[0], &wire.Envelope{Message: &ahead, Sender: &target}); err != nil {
			t.Fatal(err)
		}
		commitActivity(t, item, 0, `["a"]`)
		patience.Until(t, "the completion is held back", func() bool { return logged(h, "ReceivedOutOfOrderMessage", "taskEventId=1") })
		completeActivity(t, h, `"a"`)
		item = mustNext(t, h)
		if eventTypes(item.Messages) != "TaskCompleted " || item.Messages[0].Event.(*history.TaskCompleted).TaskScheduledID != 0 {
			t.Fatalf("messages %s, want the completion of task 0", eventTypes(item.Messages))
		}
		commitActivity(t, item, 1, `["b"]`)
		item = mustNext(t, h)
		if done := item.Messages[0].Event.(*history.TaskCompleted); done.TaskScheduledID != 1 {
			t.Fatalf("completion of task %d, want 1", done.TaskScheduledID)
		}
		commitEnd(t, item, 2, `1`)
	})
}

func TestSession_DeliversATimerWhenItIsDue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "timer", "e1", `1`)
		item := mustNext(t, h)
		due := history.TruncateToTicks(time.Now().Add(1800 * time.Millisecond))
		mustCommit(t, item, &provider.Checkpoint{
			Instance:  item.Instance,
			NewEvents: episode(item.Messages, &history.TimerCreated{Header: header(0), FireAt: due}),
			Timers:    []provider.TaskMessage{{Target: item.Instance, Event: &history.TimerFired{Header: header(-1), TimerID: 0, FireAt: due}}},
		})
		item = mustNext(t, h)
		if late := time.Since(due); late < 0 || late > time.Second {
			t.Errorf("the timer was delivered %v after it was due", late)
		}
		commitEnd(t, item, 1, `1`)
	})
}

func TestSession_WaitsForMoreMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "extended", "e1", `1`)
		item := mustNext(t, h)
		ev, msg := schedule(item, 0, `["a"]`)
		if err := item.Session.Commit(t.Context(), &provider.Checkpoint{
			Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg},
		}); err != nil {
			t.Fatal(err)
		}
		completeActivity(t, h, `"a"`)
		messages, err := item.Session.Next(t.Context(), 10*time.Second)
		if err != nil || eventTypes(messages) != "TaskCompleted " {
			t.Fatalf("messages %s, %v", eventTypes(messages), err)
		}
		if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(messages)}); err != nil {
			t.Fatal(err)
		}
		if messages, err = item.Session.Next(t.Context(), 50*time.Millisecond); err != nil || len(messages) != 0 {
			t.Fatalf("messages %s, %v; want none", eventTypes(messages), err)
		}
		// A message for another execution ends the session.
		done := make(chan string)
		go func() {
			messages, err := item.Session.Next(t.Context(), time.Minute)
			done <- fmt.Sprint(eventTypes(messages), err)
		}()
		mustStart(t, h, "extended", "e2", `1`)
		if got := <-done; got != "<nil>" {
			t.Errorf("Next returned %s, want nothing", got)
		}
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if item = mustNext(t, h); item.Instance.ExecutionID != "e2" {
			t.Errorf("execution %s, want e2", item.Instance.ExecutionID)
		}
		commitEnd(t, item, 0, `1`)
	})
}

func TestSession_ContinuesAsNew(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		big := `"` + strings.Repeat("x", 40_000) + `"`
		mustStart(t, h, "loop", "e1", big)
		commitActivity(t, mustNext(t, h), 0, `["a"]`)
		completeActivity(t, h, `"a"`)
		item := mustNext(t, h)
		before := blobNames(t, h)
		next := history.OrchestrationInstance{InstanceID: "loop", ExecutionID: "e2"}
		mustCommit(t, item, &provider.Checkpoint{
			Instance: next, ContinuedAsNew: true,
			NewEvents: episode(nil, &history.ExecutionStarted{Header: header(-1), Instance: next, Name: "HelloSeq", Input: new(`"second"`)}),
		})
		events, err := h.History(t.Context(), "loop")
		if err != nil || len(events) != 3 {
			t.Fatalf("%d events, %v; want the 3 of the new generation", len(events), err)
		}
		state, err := h.Instance(t.Context(), "loop", provider.Fetch{Input: true})
		if err != nil || state.Instance.ExecutionID != "e2" || store.Value(state.Input) != `"second"` || state.Generation != 0 || state.Status != history.Running {
			t.Errorf("state %+v, %v", state, err)
		}
		after := blobNames(t, h)
		if len(after) != len(before)-1 {
			t.Errorf("blobs before %q, after %q; want one less, without the blob of the old history", before, after)
		}
		raise(t, h, "loop", "go", `1`)
		item = mustNext(t, h)
		if item.Instance.ExecutionID != "e2" || len(item.History) != 3 {
			t.Errorf("execution %s with %d events", item.Instance.ExecutionID, len(item.History))
		}
		commitEnd(t, item, 0, `1`)
	})
}

func TestSession_DeliversADuplicateOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "twice", "e1", `1`)
		again := startMessage("twice", "e1", `1`)
		again.Event.(*history.ExecutionStarted).Generation = new(0)
		if _, err := h.sender.Send(t.Context(), h.partitions[0], &wire.Envelope{Message: &again, Sender: &history.OrchestrationInstance{}}); err != nil {
			t.Fatal(err)
		}
		item := mustNext(t, h)
		if eventTypes(item.Messages) != "ExecutionStarted " {
			t.Fatalf("messages %s", eventTypes(item.Messages))
		}
		commitActivity(t, item, 0, `["a"]`)
		patience.Until(t, "the second start is recognized", func() bool {
			return logged(h, "DuplicateMessageDetected", "ExecutionStarted")
		})
		completeActivity(t, h, `"a"`)
		item = mustNext(t, h)
		if len(item.History) != 4 {
			t.Errorf("%d events in the history, want 4", len(item.History))
		}
		commitEnd(t, item, 1, `1`)
	})
}

func TestSession_IsRedeliveredWithADelayAfterAbandon(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "retry", "e1", `1`)
		item := mustNext(t, h)
		if err := item.Session.Abandon(t.Context(), errors.New("no such orchestrator")); err != nil {
			t.Fatal(err)
		}
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		item = mustNext(t, h)
		if waited := time.Since(begin); waited < time.Second {
			t.Errorf("redelivered after %v, want two seconds", waited)
		}
		if !logged(h, "AbandoningMessage", "no such orchestrator", "delay=2s") || !logged(h, "level=INFO", "message redelivered", "retry", "attempt=2") {
			t.Error("the reason or the second delivery was not logged")
		}
		commitEnd(t, item, 0, `1`)
	})
}

func TestControlQueue_HoldsNoMoreThanTheBufferThreshold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.ControlQueueBufferThreshold, cfg.PartitionCount = 3, 2
		h := openHub(t, cfg)
		for i := range 8 {
			mustStart(t, h, fmt.Sprintf("n%d", i), "e1", `1`)
		}
		runHub(t, h)
		items := []*provider.OrchestrationWorkItem{mustNext(t, h), mustNext(t, h), mustNext(t, h)}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if item, err := h.NextOrchestration(ctx); err == nil {
			t.Fatalf("%s was dispatched beyond the threshold", item.Instance.InstanceID)
		}
		if !logged(h, "PendingOrchestratorMessageLimitReached") {
			t.Error("the full buffer was not logged")
		}
		for _, item := range items {
			commitEnd(t, item, 0, `1`)
		}
		for range 5 {
			commitEnd(t, mustNext(t, h), 0, `1`)
		}
	})
}

func TestWorkItemQueue_HasOnePollerForManyWaiters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		counter := newCounter(t)
		counter.CountEmptyPolls = true
		cfg.Transport = counter
		cfg.MaxQueuePollingInterval = 10 * time.Second
		h := openHub(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		runHub(t, h)
		var waiters sync.WaitGroup
		defer waiters.Wait()
		defer cancel()
		for range 20 {
			waiters.Go(func() { _, _ = h.NextActivity(ctx) })
		}
		polls := func() int {
			return counter.Total(func(c azuritetest.Call) bool { return c.Name == "GetMessages" && c.Target == h.workItems.Name })
		}
		patience.Until(t, "the work-item queue is polled", func() bool { return polls() > 0 })
		time.Sleep(1500 * time.Millisecond)
		if n := polls(); n > 12 {
			t.Errorf("%d polls of the empty work-item queue in 1.5 s; want at most 12", n)
		}
	})
}

func TestWorkItemQueue_DispatchesAtMostTheConfiguredNumber(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.MaxConcurrentActivities = 2
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "fan", "e1", `1`)
		item := mustNext(t, h)
		cp := &provider.Checkpoint{Instance: item.Instance}
		var decided []history.Event
		for i := range 5 {
			ev, msg := schedule(item, i, `["x"]`)
			decided = append(decided, ev)
			cp.Activities = append(cp.Activities, msg)
		}
		cp.NewEvents = episode(item.Messages, decided...)
		mustCommit(t, item, cp)
		first, second := mustActivity(t, h), mustActivity(t, h)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		if _, err := h.NextActivity(ctx); err == nil {
			t.Fatal("a third activity was dispatched")
		}
		if err := first.Lock.Abandon(t.Context(), errors.New("no such activity")); err != nil {
			t.Fatal(err)
		}
		third := mustActivity(t, h)
		for _, a := range []*provider.ActivityWorkItem{second, third} {
			if err := a.Lock.Complete(t.Context(), &history.TaskCompleted{Header: header(-1), TaskScheduledID: a.Task.EventID}); err != nil {
				t.Fatal(err)
			}
		}
		again := 0
		for range 3 {
			a := mustActivity(t, h)
			if a.Attempt == 2 && a.Task.EventID == first.Task.EventID {
				again++
			}
			if err := a.Lock.Complete(t.Context(), &history.TaskCompleted{Header: header(-1), TaskScheduledID: a.Task.EventID}); err != nil {
				t.Fatal(err)
			}
		}
		if again != 1 {
			t.Errorf("the abandoned activity was redelivered %d times, want once as attempt 2", again)
		}
	})
}

// messageCount returns the number of messages in a queue, including hidden ones.
func messageCount(t testing.TB, q *store.Queue) int {
	t.Helper()
	properties, err := q.Client.GetProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return int(store.Value(properties.ApproximateMessagesCount))
}

func TestControlQueue_RecognizesAMessageThatItHolds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.LeaseInterval = 2 * time.Second // also the visibility timeout of messages
		cfg.Transport = faulty(t, func(c azuritetest.Call) fault {
			if c.Name == "UpdateMessage" {
				return refuse
			}
			return pass
		})
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "slow", "e1", `1`)
		item := mustNext(t, h)
		patience.Until(t, "the message is redelivered, because it could not be renewed", func() bool {
			return logged(h, "DuplicateMessageDetected", "slow", "while this process held it")
		})
		if n := heldCount(h); n != 1 {
			t.Errorf("%d messages in memory, want 1", n)
		}
		commitEnd(t, item, 0, `1`)
		patience.Until(t, "it is deleted with its newer receipt", func() bool { return messageCount(t, h.controlQueues[0]) == 0 })
	})
}

func TestRenewal_HidesMessagesWhileTheyAreInUse(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.LeaseInterval = 6 * time.Second
		cfg.WorkerID = "holder"
		h := openHub(t, cfg)
		runHub(t, h)
		mustStart(t, h, "kept", "e1", `1`)
		item := mustNext(t, h)
		commitActivity(t, item, 0, `["x"]`)
		activity := mustActivity(t, h)
		mustStart(t, h, "held", "e1", `1`)
		held := mustNext(t, h)
		time.Sleep(9 * time.Second)
		if logged(h, "DuplicateMessageDetected") || logged(h, "MessageGone") {
			t.Error("a message was redelivered while it was in use")
		}
		commitEnd(t, held, 0, `1`)
		if err := activity.Lock.Complete(t.Context(), &history.TaskCompleted{Header: header(-1), TaskScheduledID: 0}); err != nil {
			t.Fatal(err)
		}
		commitEnd(t, mustNext(t, h), 1, `1`)
		patience.Until(t, "no message is left", func() bool { return messageCount(t, h.workItems)+messageCount(t, h.controlQueues[0]) == 0 })
	})
}

// The primary app holds the app lease on a container. Delete breaks it.
func TestDelete_BreaksTheAppLease(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	stop := runHub(t, h)
	patience.Until(t, "the app holds the app lease", func() bool {
		p, err := h.appLeases.Client.GetProperties(t.Context(), nil)
		return err == nil && store.Value(p.LeaseState) == lease.StateTypeLeased
	})
	stop()
	if err := openHub(t, h.cfg).Delete(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := h.appLeases.Client.GetProperties(t.Context(), nil); !store.IsNotFound(err) {
		t.Errorf("the container still exists: %v", err)
	}
}
