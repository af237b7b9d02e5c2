package azurestorage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// Only a slot that was freed is left to what follows from the activity that had it.
func TestActivityQueue_LetsTheNextActivityHaveASlotThatWasFreed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		free    int
		waiting int
		then    func(q *activityQueue)
		wanted  int
		after   time.Duration
	}{
		"slots are free": {free: 2, waiting: 1, wanted: 2},
		"one is freed":   {free: 0, waiting: 1, then: func(q *activityQueue) { q.freeSlot() }, wanted: 1, after: slotGrace},
		"more are taken than there are": {free: -1, waiting: 1, then: func(q *activityQueue) {
			q.freeSlot()
			synctest.Wait()
			q.freeSlot()
		}, wanted: 1, after: slotGrace},
		"somebody comes to wait": {free: 2, then: func(q *activityQueue) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.waiting++
			q.signal()
		}, wanted: 2},
		"one is freed before somebody comes to wait": {free: 0, then: func(q *activityQueue) {
			q.freeSlot()
			synctest.Wait()
			q.mu.Lock()
			defer q.mu.Unlock()
			q.waiting++
			q.signal()
		}, wanted: 1, after: slotGrace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &TaskHub{cfg: Config{MaxConcurrentActivities: c.free}, services: &store.Services{QueuePace: store.NewPace(1)}}
				h.held = newHeldMessages(h)
				q := newActivityQueue(h)
				q.waiting = c.waiting
				begin := time.Now()
				if c.then != nil {
					go func() {
						synctest.Wait()
						c.then(q)
					}()
				}
				wanted, _ := q.demand(t.Context())
				if after := time.Since(begin); wanted != c.wanted || after != c.after {
					t.Errorf("%d messages are wanted after %v, want %d after %v", wanted, after, c.wanted, c.after)
				}
			})
		})
	}
}
