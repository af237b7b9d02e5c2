package azurestorage

import (
	"fmt"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A queue does not show the position of a message. Before a worker has received it, the place is an
// estimate from the length of the queue.
func TestPlace_IsExactForReceivedMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.WorkerID = "w"
		client, h := openHub(t, cfg), openHub(t, cfg)
		for n := range 3 {
			mustStart(t, client, fmt.Sprint("i", n), fmt.Sprint("e", n), `1`)
		}
		place := func(h *TaskHub, id string) provider.QueuePosition {
			got, err := h.QueuePosition(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got, want := place(client, "i1"), (provider.QueuePosition{MessagesAhead: 2}); got != want {
			t.Errorf("without a worker the place is %+v, want %+v", got, want)
		}
		runHub(t, h)
		patience.Until(t, "the worker has received all messages", func() bool {
			places := map[provider.QueuePosition]bool{place(h, "i0"): true, place(h, "i1"): true, place(h, "i2"): true}
			for n := range 3 {
				if !places[provider.QueuePosition{Owner: "w", MessagesAhead: n, IsExact: true}] {
					return false
				}
			}
			return true
		})
		// For another process the queue has no visible messages now.
		if got, want := place(client, "i1"), (provider.QueuePosition{Owner: "w"}); got != want {
			t.Errorf("in another process the place is %+v, want %+v", got, want)
		}
	})
}
