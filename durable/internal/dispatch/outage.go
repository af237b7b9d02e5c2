package dispatch

import (
	"log/slog"
	"sync"
	"time"
)

// Bounds of the pause after storage failed.
const (
	pauseMin = time.Second
	pauseMax = 30 * time.Second
)

// logInterval is the least time between two warnings of one outage, in which many
// instances fail with different texts.
const logInterval = time.Minute

// An outage logs when an operation on storage begins to fail and when it works
// again, and not every attempt between.
type outage struct {
	what string // completes "cannot …"
	log  *slog.Logger

	mu     sync.Mutex // protects the following
	last   string     // the failure, empty while all is well
	since  time.Time  // when it began
	logged time.Time  // when it was last logged as a warning
	pause  time.Duration
}

// failed notes that the operation failed with err, and returns how long to
// pause before it is tried again.
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

// worked notes that the operation succeeded.
func (o *outage) worked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == "" {
		return
	}
	o.log.Info("can "+o.what+" again", "after", time.Since(o.since))
	o.last = ""
}
