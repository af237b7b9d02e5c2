package azurestorage

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// visibleMessages returns the number of visible messages in a queue.
func visibleMessages(t testing.TB, q *store.Queue) int {
	t.Helper()
	peeked, err := q.Client.PeekMessages(t.Context(), &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(32))})
	if err != nil {
		t.Fatal(err)
	}
	return len(peeked.Messages)
}

// The service hides a message for at most a week. .NET fails to send such a start; this package
// hides it again whenever it is received too early.
func TestScheduledStart_MayBeWeeksAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		due := time.Now().Add(30 * 24 * time.Hour)
		start := startMessage("patient", "e1", `1`)
		event := start.Event.(*history.ExecutionStarted)
		event.ScheduledStart = due
		if err := h.StartInstance(t.Context(), start, nil); err != nil {
			t.Fatal(err)
		}
		state, err := h.Instance(t.Context(), "patient", provider.Fetch{})
		if err != nil || state.Status != history.Pending || !state.ScheduledAt.Equal(history.TruncateToTicks(due)) {
			t.Fatalf("%+v, %v; want Pending until %v", state, err, due)
		}
		if n := visibleMessages(t, h.controlQueues[0]); n != 0 {
			t.Errorf("%d messages are visible before they are due, want 0", n)
		}

		// The message becomes visible a week later.
		text, err := wire.EncodeEnvelope(&wire.Envelope{Message: &start, Sender: &history.OrchestrationInstance{}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.controlQueues[0].Put(t.Context(), wire.EncodeQueueText(text, false), 0, false); err != nil {
			t.Fatal(err)
		}
		runHub(t, h)
		patience.Until(t, "the message is hidden again", func() bool {
			return visibleMessages(t, h.controlQueues[0]) == 0 && heldCount(h) == 0
		})
		if n := messageCount(t, h.controlQueues[0]); n != 2 {
			t.Errorf("%d messages in the queue, want both", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if item, err := h.NextOrchestration(ctx); err == nil {
			t.Errorf("%v was dispatched before it was due", item.Instance)
		}
	})
}

// An instance that is suspended before it starts receives the suspension with its start or after
// it.
func TestScheduledStart_KeepsAnEarlierSuspension(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		start := startMessage("asleep", "e1", `1`)
		start.Event.(*history.ExecutionStarted).ScheduledStart = time.Now().Add(2 * time.Second)
		if err := h.StartInstance(t.Context(), start, nil); err != nil {
			t.Fatal(err)
		}
		suspend := provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: "asleep"},
			Event:  &history.ExecutionSuspended{Header: header(history.NoEventID), Reason: new("not yet")},
		}
		if err := h.Send(t.Context(), suspend); err != nil {
			t.Fatal(err)
		}
		item := mustNext(t, h)
		types := eventTypes(item.Messages)
		commitActivity(t, item, 0, `["x"]`)
		if types == "ExecutionStarted " {
			item = mustNext(t, h)
			types += eventTypes(item.Messages)
			mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages)})
		}
		if types != "ExecutionStarted ExecutionSuspended " {
			t.Errorf("delivered %s, want ExecutionStarted and ExecutionSuspended", types)
		}
		if status := runtimeStatus(t, h, "asleep"); status != history.Suspended {
			t.Errorf("status %v, want Suspended", status)
		}
	})
}
