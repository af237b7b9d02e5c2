package store

import (
	"context"
	"time"
)

// A Nudge ends a pause early. A nudge outside of a pause ends the next pause. Several nudges have the
// same effect as one.
type Nudge chan struct{}

// NewNudge returns a new Nudge.
func NewNudge() Nudge { return make(Nudge, 1) }

// Send ends the current pause, or the next one.
func (n Nudge) Send() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// Pause waits for d, until a nudge arrives, or until ctx ends. It returns true if a nudge arrived.
func (n Nudge) Pause(ctx context.Context, d time.Duration) (nudged bool) {
	select { // without this check, a pause of 0 would be random
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
