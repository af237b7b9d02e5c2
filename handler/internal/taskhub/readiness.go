package taskhub

import (
	"context"
	"sync"
	"time"
)

// An UnavailableError says why the app cannot serve requests now.
type UnavailableError struct{ Reason string }

// Error returns the reason, a sentence.
func (e *UnavailableError) Error() string { return e.Reason }

// A Readiness says whether the app can serve and, if not, why. It is starting until the
// first attempt to reach the storage has succeeded or failed.
type Readiness struct {
	mu       sync.Mutex // protects the following
	starting bool
	reason   string // why not; empty if ready
	decided  chan struct{}
}

// NewReadiness returns the Readiness of an app that is starting.
func NewReadiness() *Readiness {
	return &Readiness{starting: true, reason: "The app is starting.", decided: make(chan struct{})}
}

// Ready says that the app can serve.
func (r *Readiness) Ready() { r.decide("") }

// Unavailable says that the app cannot serve, with a sentence that says why.
func (r *Readiness) Unavailable(reason string) { r.decide(reason) }

func (r *Readiness) decide(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reason = reason
	if r.starting {
		r.starting = false
		close(r.decided)
	}
}

// Now returns nil if the app can serve, else an [*UnavailableError].
func (r *Readiness) Now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason == "" {
		return nil
	}
	return &UnavailableError{r.reason}
}

// Await is [Readiness.Now] for a request that may wait while the app is starting, for at
// most the given time.
func (r *Readiness) Await(ctx context.Context, most time.Duration) error {
	select {
	case <-r.decided:
		return r.Now()
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.decided:
	case <-timer.C:
	case <-ctx.Done():
	}
	return r.Now()
}
