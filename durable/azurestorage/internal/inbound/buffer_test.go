package inbound

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// The limit for received messages may rise while a receiver waits. Claims ignore it.
func TestBuffer_LimitsReceivedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int64
		most.Store(2)
		b := newBuffer(5, func() int { return int(most.Load()) })
		if got := b.reserve(t.Context(), 32, nil); got != 2 {
			t.Fatalf("took %d, want 2", got)
		}
		if !b.tryReserve(1) || b.inUse() != 3 {
			t.Errorf("no slot for a claim, %d in use", b.inUse())
		}
		got := make(chan int)
		go func() { got <- b.reserve(t.Context(), 32, func() { t.Error("the buffer is reported as full") }) }()
		synctest.Wait()
		most.Store(4)
		if n := <-got; n != 1 {
			t.Errorf("took %d after the limit has risen, want 1", n)
		}
	})
}

func TestBuffer_NotifiesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(5, func() int { return math.MaxInt32 })
		if got := b.reserve(t.Context(), 32, nil); got != 5 {
			t.Fatalf("took %d, want 5", got)
		}
		full := 0
		got := make(chan int)
		go func() { got <- b.reserve(t.Context(), 2, func() { full++ }) }()
		synctest.Wait()
		b.release(3)
		if n := <-got; n != 2 || full != 1 {
			t.Errorf("took %d, reported full %d times; want 2 and 1", n, full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n := b.reserve(ctx, 1, nil); n != 0 {
			t.Errorf("took %d after ctx ended, want 0", n)
		}
	})
}
