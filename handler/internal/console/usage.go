package console

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Shortest interval between two samples of a [usageLog], and their maximum age.
const (
	usageStep = 5 * time.Second
	usageTime = time.Minute
)

// A usageLog records how many requests this process has sent to storage. It takes samples only while
// someone has the overview open.
type usageLog struct {
	mu    sync.Mutex    // guards looks
	looks []usageSample // the oldest is the base of the comparison
}

type usageSample struct {
	at    time.Time
	parts []provider.Usage
}

// A usage describes the use of the storage.
type usage struct {
	For   time.Duration // duration of the Lately counts
	Parts []partUsage
}

// A partUsage is the use of a part of the storage, since the hub was opened and lately.
type partUsage struct {
	provider.Usage
	Lately provider.Usage
	over   time.Duration
}

// CountsErrors reports whether the storage counts errors.
func (p partUsage) CountsErrors() bool { return p.Errors >= 0 }

// RequestRate returns the requests per second, lately.
func (p partUsage) RequestRate() string { return p.rate(p.Lately.Requests) }

// ErrorRate returns the failed requests per second, lately.
func (p partUsage) ErrorRate() string { return p.rate(p.Lately.Errors) }

func (p partUsage) rate(n int64) string {
	return fmt.Sprintf("%.1f", float64(n)/max(p.over.Seconds(), 1))
}

// look returns the recent use of the storage. parts are the counts up to now. The hub was opened at
// began or later.
func (u *usageLog) look(parts []provider.Usage, now, began time.Time) *usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.looks) == 0 || hasRestarted(u.looks[len(u.looks)-1].parts, parts) {
		u.looks = []usageSample{{at: began, parts: make([]provider.Usage, len(parts))}}
	}
	for len(u.looks) > 1 && now.Sub(u.looks[1].at) >= usageTime {
		u.looks = slices.Delete(u.looks, 0, 1)
	}
	first := u.looks[0]
	all := &usage{For: now.Sub(first.at).Round(time.Second)}
	for i, p := range parts {
		lately := provider.Usage{Part: p.Part, Requests: p.Requests - first.parts[i].Requests, Errors: p.Errors - first.parts[i].Errors}
		all.Parts = append(all.Parts, partUsage{p, lately, all.For})
	}
	if now.Sub(u.looks[len(u.looks)-1].at) >= usageStep {
		u.looks = append(u.looks, usageSample{now, parts})
	}
	return all
}

// hasRestarted reports whether the counters have restarted, because the hub was opened again.
func hasRestarted(before, now []provider.Usage) bool {
	if len(before) != len(now) {
		return true
	}
	for i := range now {
		if now[i].Requests < before[i].Requests {
			return true
		}
	}
	return false
}
