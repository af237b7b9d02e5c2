package azurestorage

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// sequenceSteps is the number of activities in a sequence of the test engine.
const sequenceSteps = 3

// runEngine runs sequences and their activities on h until ctx ends, several at the same time. It
// is a minimal engine for tests of a provider under load.
func runEngine(ctx context.Context, h *TaskHub) (wait func()) {
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			for {
				item, err := h.NextOrchestration(ctx)
				if err != nil {
					return
				}
				runEpisode(ctx, item)
			}
		})
		group.Go(func() {
			for {
				item, err := h.NextActivity(ctx)
				if err != nil {
					return
				}
				result := &history.TaskCompleted{
					Header: header(history.NoEventID), TaskScheduledID: item.Task.EventID, Result: item.Task.Input,
				}
				if err := item.Lock.Complete(context.WithoutCancel(ctx), result); err != nil {
					_ = item.Lock.Abandon(context.WithoutCancel(ctx), err)
				}
			}
		})
	}
	return group.Wait
}

// runEpisode advances a sequence by one step per completion.
func runEpisode(ctx context.Context, item *provider.OrchestrationWorkItem) {
	ctx = context.WithoutCancel(ctx)
	defer func() { _ = item.Session.Release(ctx) }()
	known := instances.NewKnownEvents()
	for _, ev := range item.History {
		known.Add(ev)
	}
	for _, m := range item.Messages {
		known.Add(m.Event)
	}
	cp := &provider.Checkpoint{Instance: item.Instance}
	var decided []history.Event
	switch step := known.CompletedActions.Size; {
	case known.MaxAction+1 > step: // an activity is still running
	case step < sequenceSteps:
		ev, msg := schedule(item, step, fmt.Sprintf(`["%d"]`, step))
		decided, cp.Activities = []history.Event{ev}, []provider.TaskMessage{msg}
	default:
		decided = []history.Event{&history.ExecutionCompleted{Header: header(step), Status: history.Completed, Result: new(`"done"`)}}
	}
	cp.NewEvents = episode(item.Messages, decided...)
	if err := item.Session.Commit(ctx, cp); err != nil {
		_ = item.Session.Abandon(ctx, err)
	}
}

// awaitAll waits until the instances have completed, and checks that their histories contain each
// step once.
func awaitAll(t *testing.T, h *TaskHub, ids []string) {
	t.Helper()
	for _, id := range ids {
		patience.Until(t, id+" has completed", func() bool {
			state, err := h.Instance(t.Context(), id, provider.Fetch{})
			return err == nil && state.Status == history.Completed
		})
		checkSequence(t, h, id)
	}
}

func checkSequence(t *testing.T, h *TaskHub, id string) {
	t.Helper()
	events, err := h.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, ev := range events {
		key := ev.Type().String()
		if n := inflight.TaskEventID(ev); n >= 0 {
			key += fmt.Sprint(n)
		}
		counts[key]++
	}
	want := map[string]int{"ExecutionStarted": 1, fmt.Sprint("ExecutionCompleted", sequenceSteps): 1}
	for i := range sequenceSteps {
		want[fmt.Sprint("TaskScheduled", i)], want[fmt.Sprint("TaskCompleted", i)] = 1, 1
	}
	for key, n := range want {
		if counts[key] != n {
			t.Errorf("%s: %s is in the history %d times, want %d; it has %v", id, key, counts[key], n, counts)
		}
	}
}
