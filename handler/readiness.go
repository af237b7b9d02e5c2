package handler

import (
	"context"
	"sync"
	"time"
)

// An unavailableError says why no request can be served.
type unavailableError struct{ reason string }

func (e *unavailableError) Error() string { return e.reason }

// A readiness says whether the task hub can be used and, if not, why. It begins
// as "starting", which lasts until the first attempt to reach the storage has
// succeeded or failed.
type readiness struct {
	mu       sync.Mutex // protects the following
	starting bool
	reason   string // why not; empty if ready
	decided  chan struct{}
}

func newReadiness() *readiness {
	return &readiness{starting: true, reason: "The app is starting.", decided: make(chan struct{})}
}

// ready says that requests can be served.
func (r *readiness) ready() { r.decide("") }

// unavailable says that they cannot.
func (r *readiness) unavailable(reason string) { r.decide(reason) }

func (r *readiness) decide(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reason = reason
	if r.starting {
		r.starting = false
		close(r.decided)
	}
}

// now returns nil if requests can be served, else an *unavailableError.
func (r *readiness) now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == "" {
		return nil
	}
	return &unavailableError{r.reason}
}

// await is now, but waits while the app is starting, for at most the given
// time: the first request after a start would fail for nothing otherwise.
func (r *readiness) await(ctx context.Context, most time.Duration) error {
	select {
	case <-r.decided:
		return r.now()
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.decided:
	case <-timer.C:
	case <-ctx.Done():
	}
	return r.now()
}
