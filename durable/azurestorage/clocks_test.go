package azurestorage

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
)

// clockCases are changes of the two clocks after the start of a lease of 30 s. For a process, a sleep of
// its machine looks like a wall clock that is set forward.
var clockCases = []struct {
	name string
	step time.Duration // of the wall clock
	wait time.Duration // by both clocks
	left time.Duration // of the lease
}{
	{"no change", 0, 0, 30 * time.Second},
	{"just before the end", 0, 29 * time.Second, time.Second},
	{"at the end", 0, 30 * time.Second, 0},
	{"a short sleep", 20 * time.Second, 5 * time.Second, 5 * time.Second},
	{"a sleep until the end", 30 * time.Second, 0, 0},
	{"a long sleep", time.Hour, 0, 30*time.Second - time.Hour},
	{"a wall clock that is set back", -time.Hour, 29 * time.Second, time.Second},
	{"a wall clock that is set back, at the end", -time.Hour, 30 * time.Second, 0},
	{"a wall clock that is set back, after the end", -time.Hour, 31 * time.Second, -time.Second},
}

// Another worker may receive a message as soon as its visibility timeout has ended by one clock.
func TestDelivery_IsLostWhenItsTimeoutHasEndedByOneClock(t *testing.T) {
	t.Parallel()
	for _, tt := range clockCases {
		synctest.Test(t, func(t *testing.T) {
			clock := &clocks.Clock{}
			held := newHeldMessages(newMonitor(slog.New(slog.DiscardHandler), nil, clock), store.NewPace(1), Config{LeaseInterval: time.Minute})
			message := store.Message{ID: "1", RequestedAt: time.Now(), HiddenFor: 30 * time.Second}
			received := held.newDelivery(&store.Queue{Name: "q"}, message, 30*time.Second, func() {})
			replaced := held.newDelivery(&store.Queue{Name: "q"}, store.Message{ID: "2"}, 30*time.Second, func() {})
			replaced.replace(message)
			clock.Step(tt.step)
			time.Sleep(tt.wait)
			for name, d := range map[string]*delivery{"received": received, "received again": replaced} {
				if left, _ := d.hiddenFor(clock.Now()); left != tt.left {
					t.Errorf("%s, %s: hidden for %v, want %v", tt.name, name, left, tt.left)
				}
				if got, want := anyLost([]*delivery{d}), tt.left < 0; got != want {
					t.Errorf("%s, %s: lost %t, want %t", tt.name, name, got, want)
				}
			}
		})
	}
}

// Another worker may own a partition as soon as its lease has ended by one clock.
func TestPartition_IsNotReadWhenItsLeaseHasEndedByOneClock(t *testing.T) {
	t.Parallel()
	for _, tt := range clockCases {
		synctest.Test(t, func(t *testing.T) {
			clock := &clocks.Clock{}
			p := &partition{
				inbox: &inbox{monitor: newMonitor(slog.New(slog.DiscardHandler), nil, clock)}, queue: &store.Queue{Name: "q"},
				reading: &reading{}, until: clock.Now().Add(30 * time.Second),
			}
			clock.Step(tt.step)
			time.Sleep(tt.wait)
			owned := tt.left > 0
			if p.isListening() != owned || p.Expired(clock.Now()) == owned || p.hasLapsed() == owned || p.startSession() != owned {
				t.Errorf("%s: listening %t, lapsed %t; want it to be read: %t", tt.name, p.isListening(), p.hasLapsed(), owned)
			}
			if got := p.leaseEnd(); got != time.Now().Add(tt.left) {
				t.Errorf("%s: the lease ends in %v, want %v", tt.name, time.Until(got), tt.left)
			}
		})
	}
}
