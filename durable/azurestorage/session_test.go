package azurestorage

import (
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Messages are sent in parallel, but their sequence numbers follow the order of the decisions. A
// receiver sorts by these numbers.
func TestSession_NumbersMessagesInDecisionOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		const activities = 20
		cfg := testConfig(t)
		cfg.MaxConcurrentActivities = activities
		h, _ := serving(t, cfg)
		mustStart(t, h, "fanout", "e1", `1`)
		item := mustNext(t, h)
		cp := &provider.Checkpoint{Instance: item.Instance}
		var decided []history.Event
		for i := range activities {
			ev, msg := schedule(item, i, `["a"]`)
			decided, cp.Activities = append(decided, ev), append(cp.Activities, msg)
		}
		cp.NewEvents = episode(item.Messages, decided...)
		mustCommit(t, item, cp)
		numbers := make([]int64, activities)
		for range activities {
			d, err := h.activities.Next(patience.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			numbers[taskOf(d.Event())] = d.Env.SequenceNumber
			d.Abandon(t.Context(), "the test has read it")
		}
		if !slices.IsSorted(numbers) || numbers[0] == 0 {
			t.Errorf("numbers %v, want ascending numbers", numbers)
		}
	})
}
