package replay

import "time"

// A PollSchedule is the schedule of a poll. The first call is due at once. Each interval is the
// previous one times Coefficient, up to MaxInterval. Interval must be positive, Coefficient at
// least 1 and MaxInterval at least Interval.
type PollSchedule struct {
	Interval    time.Duration
	Coefficient float64
	MaxInterval time.Duration
}

// maxGrowing is the number of calls after which intervals no longer grow. It limits the work of
// [PollSchedule.at].
const maxGrowing = 10_000

// at returns the number n and the time of the last call that is due at now, and the time of the next call.
// The first call is due at start.
func (p *PollSchedule) at(start, now time.Time) (n int, last, next time.Time) {
	n, last = 1, start
	interval := float64(p.Interval)
	for p.Coefficient > 1 && n < maxGrowing && interval < float64(p.MaxInterval) {
		if next = last.Add(time.Duration(interval)); next.After(now) {
			return n, last, next
		}
		n, last, interval = n+1, next, interval*p.Coefficient
	}
	constant := time.Duration(min(interval, float64(p.MaxInterval)))
	if passed := now.Sub(last) / constant; passed > 0 {
		n, last = n+int(passed), last.Add(passed*constant)
	}
	return n, last, last.Add(constant)
}
