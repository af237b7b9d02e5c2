package inbound

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
)

// Another worker may own a partition as soon as its lease has ended by one clock.
func TestPartition_IsNotReadWhenItsLeaseHasEndedByOneClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step time.Duration // of the wall clock
		wait time.Duration // by both clocks
		left time.Duration // of the lease
	}{
		{"just before the end", 0, 29 * time.Second, time.Second},
		{"at the end", 0, 30 * time.Second, 0},
		{"a sleep until the end", 30 * time.Second, 0, 0},
		{"a wall clock that is set back", -time.Hour, 29 * time.Second, time.Second},
		{"a wall clock that is set back, after the end", -time.Hour, 31 * time.Second, -time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &clocks.Clock{}
			p := &Partition{
				inbox: &Inbox{Monitor: monitor.New(slog.New(slog.DiscardHandler), nil, clock)}, queue: &store.Queue{Name: "q"},
				reading: &Reading{}, until: clock.Now().Add(30 * time.Second),
			}
			clock.Step(tt.step)
			time.Sleep(tt.wait)
			owned := tt.left > 0
			if p.IsListening() != owned || p.Expired(clock.Now()) == owned || p.hasLapsed() == owned || p.startSession() != owned {
				t.Errorf("%s: listening %t, lapsed %t; want it to be read: %t", tt.name, p.IsListening(), p.hasLapsed(), owned)
			}
			if got := p.LeaseEnd(); got != time.Now().Add(tt.left) {
				t.Errorf("%s: the lease ends in %v, want %v", tt.name, time.Until(got), tt.left)
			}
		})
	}
}
