package inflight

import (
	"log/slog"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
)

// newTestMessages returns the messages in flight of a worker without queues.
func newTestMessages(clock *clocks.Clock) *Messages {
	return New(monitor.New(slog.New(slog.DiscardHandler), nil, clock), store.NewPace(1), Config{LeaseInterval: time.Minute})
}

// A message that is being released can be received again before the release request returns. It is
// then a new delivery.
func TestHeldMessages_AcceptsAMessageThatIsReceivedAgainDuringItsRelease(t *testing.T) {
	t.Parallel()
	held, queue := newTestMessages(nil), &store.Queue{Name: "q"}
	m := store.Message{ID: "1", Receipt: "a", DequeueCount: 1}
	settled := 0
	first := held.newDelivery(queue, m, time.Minute, func() { settled++ })
	if older := held.add(first); older != nil {
		t.Fatal("the first delivery is a duplicate")
	}
	again := held.newDelivery(queue, m, time.Minute, func() {})
	if older := held.add(again); older != first {
		t.Error("a second delivery of a held message is not recognized as a duplicate")
	}
	first.releasing = true
	if older := held.add(again); older != nil {
		t.Error("a delivery of a message that is being released is a duplicate")
	}
	first.Settle()
	if n := len(held.byID); n != 1 || settled != 1 {
		t.Errorf("%d messages are held, want the redelivered one", n)
	}
}

func TestLockTime_IsAtMostTheLeaseInterval(t *testing.T) {
	for _, tt := range []struct{ configured, lease, want time.Duration }{
		{5 * time.Minute, 30 * time.Second, 30 * time.Second},
		{20 * time.Second, 30 * time.Second, 20 * time.Second},
		{time.Minute, 2500 * time.Millisecond, 2 * time.Second},
		{time.Minute, 100 * time.Millisecond, time.Second},
	} {
		if got := lockTime(tt.configured, tt.lease); got != tt.want {
			t.Errorf("lockTime(%v, %v) = %v, want %v", tt.configured, tt.lease, got, tt.want)
		}
	}
}
