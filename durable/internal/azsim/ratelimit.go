package azsim

import "sync"

// RateLimit refuses requests to one service above a rate with 503 ServerBusy.
type RateLimit struct {
	Service   string
	PerSecond float64 // the allowed requests per second, and the maximum burst

	mu               sync.Mutex // protects the fields below
	limits           Standard
	allowed, refused int
}

// Decide implements [Config.Decide].
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
