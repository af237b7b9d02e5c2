package dispatch

import (
	"log/slog"
	"sync"
	"time"
)

// Limits of the pause after a storage failure.
const (
	pauseMin = time.Second
	pauseMax = 30 * time.Second
)

// logInterval is the minimum time between two warnings about one outage, during which instances
// fail with different texts.
const logInterval = time.Minute

// An outage logs when a storage operation starts to fail and when it succeeds again. It does
// not log every attempt as a warning.
type outage struct {
	what string // completes "cannot …"
	log  *slog.Logger

	mu     sync.Mutex // protects the following
	last   string     // the last failure; empty while the operation succeeds
	since  time.Time  // when the outage started
	logged time.Time  // when a warning was last logged
	pause  time.Duration
}

// failed records that the operation failed with err. It returns the pause before the next
// attempt.
func (o *outage) failed(err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	text, now := err.Error(), time.Now()
	switch {
	case o.last == "":
		o.since, o.logged, o.pause = now, now, pauseMin
		o.log.Warn("cannot "+o.what+"; trying again", "error", err)
	case o.last != text && now.Sub(o.logged) >= logInterval:
		o.logged, o.pause = now, min(2*o.pause, pauseMax)
		o.log.Warn("still cannot "+o.what, "error", err, "for", now.Sub(o.since))
	default:
		o.pause = min(2*o.pause, pauseMax)
		o.log.Debug("still cannot "+o.what, "error", err, "for", now.Sub(o.since))
	}
	o.last = text
	return o.pause
}

// succeeded records that the operation succeeded.
func (o *outage) succeeded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == "" {
		return
	}
	o.log.Info("can "+o.what+" again", "after", time.Since(o.since))
	o.last = ""
}
