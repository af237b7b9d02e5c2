package azsim

import "sync"

// A RateLimit refuses requests to one service beyond a rate with 503 ServerBusy.
type RateLimit struct {
	Service   string
	PerSecond float64 // allowed requests; a burst may be as large

	mu               sync.Mutex // protects the following
	limits           Standard
	allowed, refused int
}

// Decide is for [Config.Decide].
func (l *RateLimit) Decide(r Request) Fault {
	if r.Service != l.Service {
		return None
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limits.take(l.Service, l.PerSecond) {
		l.refused++
		return Throttle
	}
	l.allowed++
	return None
}

// Counts returns the numbers of allowed and refused requests.
func (l *RateLimit) Counts() (allowed, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed, l.refused
}
