package console

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// rateMinutes is for how long rates are kept.
const rateMinutes = 60

// counted are the statuses that rates counts, with what is said of the instances that got
// into them.
var counted = [...]struct {
	status history.RuntimeStatus
	title  string
}{{history.Running, "Started"}, {history.Completed, "Completed"}, {history.Failed, "Failed"}}

// rates counts how many orchestrations began and ended in this process in each of the last
// minutes. It has the same size whatever happens.
type rates struct {
	mu      sync.Mutex // protects minutes
	minutes [rateMinutes]minuteCounts
}

// minuteCounts are the counts of a minute, in the order of counted.
type minuteCounts struct {
	minute int64 // since 1970
	counts [len(counted)]int
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// add counts an orchestration that got a status.
func (r *rates) add(s history.RuntimeStatus, at time.Time) {
	for i, c := range counted {
		if c.status != s {
			continue
		}
		r.mu.Lock()
		m, now := &r.minutes[minuteOf(at)%rateMinutes], minuteOf(at)
		if m.minute != now {
			*m = minuteCounts{minute: now}
		}
		m.counts[i]++
		r.mu.Unlock()
	}
}

// A rate is what was counted of one kind, by minute.
type rate struct {
	Title  string
	Counts [rateMinutes]int // the current minute is the last
}

// lately returns the counts of the last minutes.
func (r *rates) lately(now time.Time) (all []rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := minuteOf(now)
	for i, c := range counted {
		one := rate{Title: c.title}
		for ago := range int64(rateMinutes) {
			if m := &r.minutes[(last-ago)%rateMinutes]; m.minute == last-ago {
				one.Counts[rateMinutes-1-ago] = m.counts[i]
			}
		}
		all = append(all, one)
	}
	return all
}

// Now is the count of the current minute.
func (r rate) Now() int { return r.Counts[rateMinutes-1] }

// All is the count of all minutes.
func (r rate) All() (n int) {
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// Most is the highest count of a minute.
func (r rate) Most() (n int) {
	for _, c := range r.Counts {
		n = max(n, c)
	}
	return n
}

// sparkHeight is the height of the lines that are drawn of rates.
const sparkHeight = 20

// Points are those of a line for an SVG that is a minute wide for each minute.
func (r rate) Points() string {
	var points strings.Builder
	for i, c := range r.Counts {
		fmt.Fprintf(&points, "%d,%.1f ", i, sparkHeight-1-float64(c)/float64(max(r.Most(), 1))*(sparkHeight-2))
	}
	return strings.TrimSpace(points.String())
}
