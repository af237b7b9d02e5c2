package inflight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
)

// Source: DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync.
func TestAbandonDelay_DoublesUpToTenMinutes(t *testing.T) {
	for count, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 9: 512 * time.Second,
		10: 10 * time.Minute, 1 << 40: 10 * time.Minute,
	} {
		if got := AbandonDelay(count); got != want {
			t.Errorf("abandonDelay(%d) = %v, want %v", count, got, want)
		}
	}
}

// The age of a message depends only on the queue's clock.
func TestDelivery_AgeUsesTheClockOfTheService(t *testing.T) {
	t.Parallel()
	held, queue := newTestMessages(nil), &store.Queue{Name: "q"}
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		inserted := time.Now().Add(ahead)
		m := store.Message{ID: "m", InsertedOn: inserted, VisibleAt: inserted.Add(40 * time.Second), HiddenFor: 30 * time.Second}
		if d := held.newDelivery(queue, m, 30*time.Second, func() {}); d.Age != 10*time.Second {
			t.Errorf("with a clock %v ahead, the age of the message is %v, want 10s", ahead, d.Age)
		}
		m.VisibleAt = time.Time{} // it was claimed
		if d := held.newDelivery(queue, m, 30*time.Second, func() {}); d.Age != 0 {
			t.Errorf("a claimed message has the age %v, want 0", d.Age)
		}
	}
}

func TestBoundaries_OfDelays(t *testing.T) {
	t.Parallel()
	boundary.Check(t, "the longest delay of an abandoned message", func(offset int) time.Duration { return AbandonDelay(10 + offset) },
		512*time.Second, MaxAbandonDelay, MaxAbandonDelay)
	boundary.Check(t, "the shortest delay of an abandoned message", AbandonDelay, time.Second, time.Second, 2*time.Second)
	boundary.Check(t, "a visibility timeout is at most the lease interval", func(offset int) time.Duration {
		return lockTime(30*time.Second, time.Duration(30+offset)*time.Second)
	}, 29*time.Second, 30*time.Second, 30*time.Second)
	boundary.Check(t, "a visibility timeout has whole seconds", func(offset int) time.Duration {
		return lockTime(2*time.Second+time.Duration(offset), time.Minute)
	}, time.Second, 2*time.Second, 2*time.Second)
}

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
			held := newTestMessages(clock)
			message := store.Message{ID: "1", RequestedAt: time.Now(), HiddenFor: 30 * time.Second}
			received := held.newDelivery(&store.Queue{Name: "q"}, message, 30*time.Second, func() {})
			replaced := held.newDelivery(&store.Queue{Name: "q"}, store.Message{ID: "2"}, 30*time.Second, func() {})
			replaced.replace(message)
			clock.Step(tt.step)
			time.Sleep(tt.wait)
			for name, d := range map[string]*Delivery{"received": received, "received again": replaced} {
				if left, _ := d.hiddenFor(clock.Now()); left != tt.left {
					t.Errorf("%s, %s: hidden for %v, want %v", tt.name, name, left, tt.left)
				}
				if got, want := AnyLost([]*Delivery{d}), tt.left < 0; got != want {
					t.Errorf("%s, %s: lost %t, want %t", tt.name, name, got, want)
				}
			}
		})
	}
}
