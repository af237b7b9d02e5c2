package partition

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPartition_AbandonDelayDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	c := Config{AbandonDelay: time.Second, MaxAbandonDelay: 5 * time.Second}
	for attempt, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 5, 1000000: 5} {
		if got := c.abandonDelay(attempt); got != want*time.Second {
			t.Errorf("delay of attempt %d is %v, want %v", attempt, got, want*time.Second)
		}
	}
}

// The delay counts the sessions since the last that got on: what has failed often in its
// life waits no longer than what fails for the first time, after a checkpoint or when
// another instance begins under the ID.
func TestPartition_AbandonDelayBeginsAnewOnceTheInstanceGetsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, newDisk())
		r.Start("a")
		item := r.Next()
		for _, getsOn := range []func(){
			func() {},
			func() { r.Raise("a", "E"); r.Finish(item); item = r.Next() },
			func() {
				r.Must(item.Session.Abandon(t.Context(), errors.New("it cannot be done")))
				r.Must(item.Session.Release(t.Context()))
				r.Start("a") // in its place
				item = r.Next()
			},
		} {
			getsOn()
			for want := time.Millisecond; want < 10*time.Millisecond; want *= 2 {
				r.Must(item.Session.Abandon(t.Context(), errors.New("it cannot be done")))
				r.Must(item.Session.Release(t.Context()))
				began := time.Now()
				item = r.Next()
				if took := time.Since(began); took != want {
					t.Errorf("work that was abandoned is handed out again after %v, want %v", took, want)
				}
			}
		}
	})
}
