package inbound

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// Only a freed slot is reserved for the next activity of its instance.
func TestActivityQueue_ReservesAFreedSlotForTheNextActivity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		free    int
		waiting int
		then    func(q *ActivityQueue)
		wanted  int
		after   time.Duration
	}{
		"slots are free":  {free: 2, waiting: 1, wanted: 2},
		"a slot is freed": {free: 0, waiting: 1, then: func(q *ActivityQueue) { q.Unclaim() }, wanted: 1, after: slotGrace},
		"more slots are claimed than free": {free: -1, waiting: 1, then: func(q *ActivityQueue) {
			q.Unclaim()
			synctest.Wait()
			q.Unclaim()
		}, wanted: 1, after: slotGrace},
		"a caller arrives": {free: 2, then: func(q *ActivityQueue) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.waiting++
			q.signal()
		}, wanted: 2},
		"a slot is freed before a caller arrives": {free: 0, then: func(q *ActivityQueue) {
			q.Unclaim()
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
				q := NewActivityQueue(c.free, time.Second, nil, nil, inflight.New(&monitor.Monitor{}, store.NewPace(1), inflight.Config{}), nil)
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
					t.Errorf("demand returned %d after %v, want %d after %v", wanted, after, c.wanted, c.after)
				}
			})
		})
	}
}
