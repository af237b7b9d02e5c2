package store

import "time"

// A throttle limits the rate of requests to a service that refuses some because it is
// overloaded. After a refusal the service gets nothing for the time that it names, or for a
// pause that grows with each refusal in a row. The rate halves once for each burst of
// refusals, and grows with each answer. The zero value limits nothing.
type throttle struct {
	rate    float64   // requests per second; 0 is without a limit
	next    time.Time // when the next request may be sent
	refusal time.Time // the last one that was not of the same burst as the one before
	pause   time.Duration

	answers int       // since counted
	counted time.Time // a second ago or less
	before  int       // answers in the second before that
}

const (
	// The rate after the first refusal is half of what the service has answered in the last
	// second, but at least firstRate.
	firstRate = 10
	leastRate = 0.5
	// Each answer makes the rate grow by rateGrowth of itself.
	rateGrowth = 0.05
	// throttleMemory is the time after the last refusal from which the rate has no limit.
	throttleMemory = time.Minute

	firstPause = 250 * time.Millisecond
	maxPause   = 2 * time.Second
)

// refused takes note of the refusal of a request that was sent at since. after is for how
// long the service wants no request, 0 if it does not say so.
func (t *throttle) refused(since, now time.Time, after time.Duration, jitter func(time.Duration) time.Duration) {
	if !since.After(t.refusal) { // of a burst that was answered for already
		t.hold(now.Add(after))
		return
	}
	t.refusal = now
	if t.rate == 0 {
		t.count(now)
		t.rate = max(firstRate, float64(max(t.answers, t.before))/2)
	} else {
		t.rate = max(leastRate, t.rate/2)
	}
	t.pause = min(max(2*t.pause, firstPause), maxPause)
	if after == 0 {
		after = jitter(t.pause)
	}
	t.hold(now.Add(after))
}

// hold sends nothing before until.
func (t *throttle) hold(until time.Time) {
	if until.After(t.next) {
		t.next = until
	}
}

// answered takes note of the answer to a request that was sent at since.
func (t *throttle) answered(since, now time.Time) {
	t.count(now)
	t.answers++
	if t.rate > 0 && since.After(t.refusal) {
		t.rate += t.rate * rateGrowth
		t.pause = 0
	}
}

// count begins to count answers anew after a second.
func (t *throttle) count(now time.Time) {
	switch passed := now.Sub(t.counted); {
	case passed >= 2*time.Second:
		t.before, t.answers, t.counted = 0, 0, now
	case passed >= time.Second:
		t.before, t.answers, t.counted = t.answers, 0, now
	}
}

// spend takes note of a request that is sent.
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

// forget lifts the limit if the last refusal is long ago.
func (t *throttle) forget(now time.Time) {
	if t.rate > 0 && now.Sub(t.refusal) > throttleMemory && now.After(t.next) {
		t.rate = 0
	}
}
