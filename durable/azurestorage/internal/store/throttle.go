package store

import "time"

// A throttle limits the rate of requests to an overloaded service. After a refusal, the service gets
// no requests for the time in its response, or else for a pause that grows with each consecutive
// refusal. The rate halves once per burst of refusals, and grows with each successful response. The
// zero value does not limit requests.
type throttle struct {
	rate    float64       // requests per second; 0 means no limit
	next    time.Time     // earliest time of the next request
	refusal time.Time     // time of the first refusal of the last burst
	pause   time.Duration // pause after the last burst; 0 after a successful response

	answers  int       // number of responses since counted
	counted  time.Time // at most a second ago
	previous int       // number of responses in the second before counted
}

const (
	// The rate after the first refusal is half of the responses in the last second, but at least
	// firstRate.
	firstRate = 10
	leastRate = 0.5
	// Each successful response increases the rate by this share, up to twice the responses in the last
	// second.
	rateGrowth = 0.05
	// throttleMemory is the time after the last refusal at which the limit ends.
	throttleMemory = time.Minute

	firstPause = 250 * time.Millisecond
	maxPause   = 2 * time.Second
)

// refused records a refusal of a request that was sent at sent. after is the time in the response for
// which the service accepts no requests, 0 if it has none.
func (t *throttle) refused(sent, now time.Time, after time.Duration, jitter func(time.Duration) time.Duration) {
	if !sent.After(t.refusal) { // part of the last burst
		t.hold(now.Add(after))
		return
	}
	t.refusal = now
	if t.rate == 0 {
		t.rate = max(firstRate, float64(t.lastSecond(now))/2)
	} else {
		t.rate = max(leastRate, t.rate/2)
	}
	t.pause = min(max(2*t.pause, firstPause), maxPause)
	if after == 0 {
		after = jitter(t.pause)
	}
	t.hold(now.Add(after))
}

// hold allows no requests before until.
func (t *throttle) hold(until time.Time) {
	if until.After(t.next) {
		t.next = until
	}
}

// answered records a successful response to a request that was sent at sent.
func (t *throttle) answered(sent, now time.Time) {
	most := max(firstRate, 2*float64(t.lastSecond(now)))
	t.answers++
	if t.rate > 0 && sent.After(t.refusal) {
		t.pause = 0
		if t.rate < most { // an unused rate must not grow without limit
			t.rate = min(t.rate*(1+rateGrowth), most)
		}
	}
}

// lastSecond returns the number of responses in the current or in the previous second, whichever is
// higher.
func (t *throttle) lastSecond(now time.Time) int {
	switch passed := now.Sub(t.counted); {
	case passed >= 2*time.Second:
		t.previous, t.answers, t.counted = 0, 0, now
	case passed >= time.Second:
		t.previous, t.answers, t.counted = t.answers, 0, now
	}
	return max(t.previous, t.answers)
}

// countRequest records that a request is sent.
func (t *throttle) countRequest(now time.Time) {
	if t.rate > 0 {
		t.next = now.Add(t.interval())
	}
}

// interval returns the time between two requests.
func (t *throttle) interval() time.Duration {
	if t.rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / t.rate)
}

// forget removes the limit if the last refusal is older than throttleMemory.
func (t *throttle) forget(now time.Time) {
	if t.rate > 0 && now.Sub(t.refusal) > throttleMemory && now.After(t.next) {
		t.rate = 0
	}
}
