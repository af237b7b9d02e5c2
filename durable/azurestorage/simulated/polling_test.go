package simulated_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// A worker polls a queue less and less often while the queue is empty or the service does not
// respond. It polls often again after a message or a response.
func TestQueues_ArePolledOftenAfterAMessageAndAfterAnOutage(t *testing.T) {
	for _, queue := range []string{"polls-control-00", "polls-workitems", "polls-tracking"} {
		t.Run(queue, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var silent atomic.Bool
				account := azsim.New(azsim.Config{Seed: 3, Decide: func(r azsim.Request) azsim.Fault {
					if silent.Load() && r.Operation == "GetMessages" {
						return azsim.Throttle
					}
					return azsim.None
				}})
				defer account.End()
				f := &fleet{T: t, account: account, config: azurestorage.Config{TaskHub: "Polls", PartitionCount: 1, Tracking: true}, began: time.Now(), running: map[string]*member{}}
				f.join("one", nil)
				defer f.leave("one")
				// pauses returns the shortest and the longest pause between two polls in the next
				// d.
				pauses := func(d time.Duration) (shortest, longest time.Duration) {
					began := f.elapsed()
					time.Sleep(d)
					last := time.Duration(-1)
					for _, e := range account.Log() {
						if e.Operation != "GetMessages" || !strings.Contains(e.Path, queue) || e.AppliedAt < began {
							continue
						}
						if pause := e.AppliedAt - last; last >= 0 && (shortest == 0 || pause < shortest) {
							shortest = pause
						}
						if last >= 0 {
							longest = max(longest, e.AppliedAt-last)
						}
						last = e.AppliedAt
					}
					return shortest, longest
				}
				time.Sleep(10 * time.Minute)
				if shortest, _ := pauses(5 * time.Minute); shortest < 25*time.Second {
					t.Errorf("after ten minutes without a message, two polls are %v apart", shortest)
				}
				if !account.Put(queue, "nonsense", 0) {
					t.Fatalf("queue %s does not exist; queues: %q", queue, account.Queues())
				}
				if shortest, _ := pauses(time.Minute); shortest > time.Second {
					t.Errorf("after a message, the shortest pause between polls is %v", shortest)
				}
				silent.Store(true)
				time.Sleep(10 * time.Minute)
				if shortest, longest := pauses(5 * time.Minute); shortest < 4*time.Second || longest > 15*time.Second {
					t.Errorf("in an outage, polls are %v to %v apart", shortest, longest)
				}
				silent.Store(false)
				time.Sleep(time.Minute)
				silent.Store(true)
				if shortest, _ := pauses(time.Minute); shortest > 3*time.Second { // after rejections the worker pauses for up to two seconds
					t.Errorf("in the next outage, the shortest pause between polls is %v", shortest)
				}
				silent.Store(false)
			})
		})
	}
}
