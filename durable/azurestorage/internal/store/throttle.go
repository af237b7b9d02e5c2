package store

import "time"

// A throttle limits the rate of requests to an overloaded service. After a refusal the
// service gets no request for the time that it names, or for a pause that grows with each
// refusal in a row. The rate halves once for each burst of refusals, and grows with each
// answer. The zero value limits nothing.
type throttle struct {
	rate    float64       // requests per second; 0 means no limit
	next    time.Time     // earliest time of the next request
	refusal time.Time     // first refusal of the last burst
	pause   time.Duration // after the last burst; 0 if an answer has come since

	answers  int       // since counted
	counted  time.Time // a second ago or less
	previous int       // answers in the second before counted
}

const (
	// The rate after the first refusal is half of the answers in the last second, but at
	// least firstRate.
	firstRate = 10
	leastRate = 0.5
	// Each answer increases the rate by this share, up to twice the answers in the last
	// second.
	rateGrowth = 0.05
	// throttleMemory is the time after the last refusal from which the rate has no limit.
	throttleMemory = time.Minute

	firstPause = 250 * time.Millisecond
	maxPause   = 2 * time.Second
)

// refused records the refusal of a request that was sent at sent. The service wants no
// request for the time after; 0 means that it does not name a time.
func (t *throttle) refused(sent, now time.Time, after time.Duration, jitter func(time.Duration) time.Duration) {
	if !sent.After(t.refusal) { // of the last burst
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

// hold allows no request before until.
func (t *throttle) hold(until time.Time) {
	if until.After(t.next) {
		t.next = until
	}
}

// answered records the answer to a request that was sent at sent.
func (t *throttle) answered(sent, now time.Time) {
	most := max(firstRate, 2*float64(t.lastSecond(now)))
	t.answers++
	if t.rate > 0 && sent.After(t.refusal) {
		t.pause = 0
		if t.rate < most { // a rate that is not used must not grow without bound
			t.rate = min(t.rate*(1+rateGrowth), most)
		}
	}
}

// lastSecond returns the number of answers in the last second, or in the second before if
// those were more.
func (t *throttle) lastSecond(now time.Time) int {
	switch passed := now.Sub(t.counted); {
	case passed >= 2*time.Second:
		t.previous, t.answers, t.counted = 0, 0, now
	case passed >= time.Second:
		t.previous, t.answers, t.counted = t.answers, 0, now
	}
	return max(t.previous, t.answers)
}

// spend records that a request is sent.
func (t *throttle) spend(now time.Time) {
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

// forget removes the limit if the last refusal is longer than throttleMemory ago.
func (t *throttle) forget(now time.Time) {
	if t.rate > 0 && now.Sub(t.refusal) > throttleMemory && now.After(t.next) {
		t.rate = 0
	}
}
