package console

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Of the looks at the use of the storage, one each usageStep is kept for usageTime.
const (
	usageStep = 5 * time.Second
	usageTime = time.Minute
)

// A usageLog keeps the last looks at how often this process has turned to the storage. Who
// does not look at the overview makes none.
type usageLog struct {
	mu    sync.Mutex  // protects looks
	looks []usageLook // the first is the one to compare with
}

type usageLook struct {
	at    time.Time
	parts []provider.Usage
}

// A usage is the use of the storage.
type usage struct {
	For   time.Duration // how long lately is
	Parts []partUsage
}

// A partUsage is the use of a part of the storage since the hub was opened, and lately.
type partUsage struct {
	provider.Usage
	Lately provider.Usage
	over   time.Duration
}

// CountsErrors reports whether errors are known.
func (p partUsage) CountsErrors() bool { return p.Errors >= 0 }

// RequestRate is how many requests there were a second.
func (p partUsage) RequestRate() string { return p.rate(p.Lately.Requests) }

// ErrorRate is how many of them failed a second.
func (p partUsage) ErrorRate() string { return p.rate(p.Lately.Errors) }

func (p partUsage) rate(n int64) string {
	return fmt.Sprintf("%.1f", float64(n)/max(p.over.Seconds(), 1))
}

// look returns the use of the storage lately, by what was counted until now. The hub was
// opened at began, or later.
func (u *usageLog) look(parts []provider.Usage, now, began time.Time) *usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.looks) == 0 || isNewCount(u.looks[len(u.looks)-1].parts, parts) {
		u.looks = []usageLook{{at: began, parts: make([]provider.Usage, len(parts))}}
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
		u.looks = append(u.looks, usageLook{now, parts})
	}
	return all
}

// isNewCount reports whether what was counted is not what was counted before and more: the
// hub was opened again.
func isNewCount(before, now []provider.Usage) bool {
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
