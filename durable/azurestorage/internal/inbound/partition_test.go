package inbound

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
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

// A table outage may end the lease during a drain. If this worker acquires the partition again, the
// sessions of the drain end while the queue is read.
func TestPartition_IsNotDrainedByAnEarlierDrain(t *testing.T) {
	t.Parallel()
	for name, drains := range map[string]int{"while the queue is read": 1, "during the next drain": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := emptyInbox()
				b.Clock, b.instances = &clocks.Clock{}, instances.New(instances.Config{})
				p := NewPartitions(b, []*store.Queue{{Name: "q"}}, Polling{}, store.NewNudge(), &sync.WaitGroup{})[0]
				lease := func(left time.Duration) clocks.Moment { return b.Clock.Now().Add(left) }
				p.reading, p.until = &Reading{cancel: func() {}}, lease(time.Minute)
				if !p.startSession() {
					t.Fatal("the partition has no session")
				}
				want := leases.NotDraining
				for n := range drains {
					limit := time.Duration(n+1) * time.Minute
					p.BeginDrain(t.Context(), limit)
					synctest.Wait()
					if got := p.DrainState(); got != leases.Draining {
						t.Fatalf("drain %d with a session: %v, want %v", n, got, leases.Draining)
					}
					if n == 0 {
						p.StartReading(t.Context(), lease(0)) // without a lease it does not receive
					} else {
						want = leases.Draining
					}
				}
				time.Sleep(time.Minute) // the limit of the first drain
				synctest.Wait()
				if got := p.DrainState(); got != want {
					t.Errorf("after the first drain: %v, want %v", got, want)
				}
				p.StopReading(t.Context())()
				p.endSession()
				p.tasks.Wait()
			})
		})
	}
}
