package azsim

import (
	"math"
	"sync"
	"time"
)

// Standard simulates the latency and the limits of a typical standard account in the region of
// its users. Use its methods in the [Config] of one account. The zero value is ready to use.
//
// Durations have a log-normal distribution with these medians and 99th percentiles:
//
//	appending a block            12 ms    60 ms
//	everything else               6 ms    30 ms
//
// Requests above a limit are refused with 503 ServerBusy. The limits per second are those in
// the service's documentation:
//
//	requests to a blob              500
//	messages of a queue           2,000
//	entities of a table partition 2,000; only requests are counted here
//	requests to the account      20,000
type Standard struct {
	mu      sync.Mutex // protects the fields below
	buckets map[string]*bucket
	refused int
}

// bucket counts the requests that are still allowed. It is full after a second without
// requests.
type bucket struct {
	left float64
	at   time.Time
}

const (
	appendMiddle, appendLong = 12 * time.Millisecond, 60 * time.Millisecond
	otherMiddle, otherLong   = 6 * time.Millisecond, 30 * time.Millisecond

	blobLimit    = 500
	queueLimit   = 2_000
	tableLimit   = 2_000
	accountLimit = 20_000
)

// Delay implements [Config.Delay].
func (*Standard) Delay(r Request, _ int) time.Duration {
	middle, long := otherMiddle, otherLong
	if r.Operation == "AppendBlock" {
		middle, long = appendMiddle, appendLong
	}
	return logNormal(fraction(mix(r.Roll, 8)), middle, long)
}

// logNormal returns the value at a quantile in [0, 1) of the log-normal distribution with the
// given median and 99th percentile.
func logNormal(place float64, middle, long time.Duration) time.Duration {
	deviations := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
	spread := math.Log(float64(long)/float64(middle)) / deviations(0.99)
	return time.Duration(float64(middle) * math.Exp(spread*deviations(max(place, 1e-9))))
}

// Decide implements [Config.Decide].
func (s *Standard) Decide(r Request) Fault {
	of, limit := r.Service+" "+r.Target, float64(queueLimit)
	switch r.Service {
	case BlobService:
		of, limit = r.Service+" "+r.Path, blobLimit
		if r.rest() == "" { // a container has no limit of its own
			limit = accountLimit
		}
	case TableService:
		limit = tableLimit
		if key, _, ok := readKeys(lastSegment(r.Path)); ok {
			of += " " + key
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.take(of, limit) || !s.take("account", accountLimit) {
		s.refused++
		return Throttle
	}
	return None
}

// Refused returns the number of refused requests.
func (s *Standard) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// take reports whether one more request is within a limit. s.mu is locked.
func (s *Standard) take(of string, limit float64) bool {
	now := time.Now()
	b := s.buckets[of]
	if b == nil {
		if s.buckets == nil {
			s.buckets = map[string]*bucket{}
		}
		b = &bucket{left: limit, at: now}
		s.buckets[of] = b
	}
	b.left = min(limit, b.left+limit*now.Sub(b.at).Seconds())
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
