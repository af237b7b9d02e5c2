package azsim

import "sync"

// A RateLimit refuses the requests to one service beyond a rate with 503 ServerBusy. Its
// Decide is for [Config.Decide].
type RateLimit struct {
	Service   string
	PerSecond float64 // requests that are allowed; up to as many may come at once

	limits           Standard
	mu               sync.Mutex // protects the following
	allowed, refused int
}

// Decide is for [Config.Decide].
func (l *RateLimit) Decide(r Request) Fault {
	if r.Service != l.Service {
		return None
	}
	l.limits.mu.Lock()
	within := l.limits.take(l.Service, l.PerSecond)
	l.limits.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !within {
		l.refused++
		return Throttle
	}
	l.allowed++
	return None
}

// Counts returns how many requests were allowed and refused.
func (l *RateLimit) Counts() (allowed, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed, l.refused
}
