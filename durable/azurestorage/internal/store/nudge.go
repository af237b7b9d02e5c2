package store

import (
	"context"
	"time"
)

// A Nudge cuts a pause short. One that comes outside of a pause ends the next
// one; several are as good as one.
type Nudge chan struct{}

// NewNudge returns a nudge that was not given.
func NewNudge() Nudge { return make(Nudge, 1) }

// Give ends the pause, or the next one.
func (n Nudge) Give() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// Pause waits for d, or until ctx ends. True means that it was cut short by a
// nudge.
func (n Nudge) Pause(ctx context.Context, d time.Duration) (nudged bool) {
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
