package azurestorage

import (
	"context"
	"time"
)

// A nudge cuts a pause short. One that comes while nobody pauses is for the next
// pause; several are as good as one.
type nudge chan struct{}

func newNudge() nudge { return make(nudge, 1) }

// give ends the pause, or the next one.
func (n nudge) give() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// pause waits for d, or until ctx ends. True means that it was cut short by a
// nudge.
func (n nudge) pause(ctx context.Context, d time.Duration) (nudged bool) {
	select { // a pause of no time must not depend on chance
	case <-n:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-n:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
