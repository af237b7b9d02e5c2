package console

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Rates are counted for each rateStep of the last rateTime. The first page reloads as often.
const (
	rateStep  = 5 * time.Second
	rateTime  = 10 * time.Minute
	rateSteps = int(rateTime/rateStep) + 1 // the last is the current step
)

// counted are the statuses that rates counts, with the titles of their counts.
var counted = [...]struct {
	status history.RuntimeStatus
	title  string
}{{history.Running, "Started"}, {history.Completed, "Completed"}, {history.Failed, "Failed"}}

// rates counts the orchestrations that started and ended in this process. Its size is constant.
type rates struct {
	mu    sync.Mutex // protects steps
	steps [rateSteps]stepCounts
}

// stepCounts are the counts of a step of time, in the order of counted.
type stepCounts struct {
	step   int64 // since 1970
	counts [len(counted)]int
}

func rateStepOf(t time.Time) int64 { return t.UnixNano() / int64(rateStep) }

// add counts an orchestration that got a status.
func (r *rates) add(s history.RuntimeStatus, at time.Time) {
	for i, c := range counted {
		if c.status != s {
			continue
		}
		r.mu.Lock()
		now := rateStepOf(at)
		m := &r.steps[now%int64(rateSteps)]
		if m.step != now {
			*m = stepCounts{step: now}
		}
		m.counts[i]++
		r.mu.Unlock()
	}
}

// A throughput has the counts of the last rateTime.
type throughput struct {
	Rates []rate
	Most  int // the highest count of a step, at least 1
}

// A rate has the counts of one status by step of time. The last one is the current step.
type rate struct {
	Title  string
	Counts [rateSteps]int
}

// lately returns the counts until now.
func (r *rates) lately(now time.Time) throughput {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := throughput{Most: 1}
	last := rateStepOf(now)
	for i, c := range counted {
		one := rate{Title: c.title}
		for n := range one.Counts {
			step := last - int64(rateSteps-1-n)
			if m := &r.steps[step%int64(rateSteps)]; m.step == step {
				one.Counts[n] = m.counts[i]
				all.Most = max(all.Most, m.counts[i])
			}
		}
		all.Rates = append(all.Rates, one)
	}
	return all
}

// Class is the class of the rate's line in the style sheet.
func (r rate) Class() string { return strings.ToLower(r.Title) }

// PerSecond is the rate of the last whole step.
func (r rate) PerSecond() string { return perSecond(r.Counts[rateSteps-2]) }

// MostPerSecond is the highest rate, the upper end of the graph.
func (t throughput) MostPerSecond() string { return perSecond(t.Most) }

func perSecond(count int) string {
	return fmt.Sprintf("%.4g/s", float64(count)/rateStep.Seconds())
}

// All is the sum of the counts.
func (r rate) All() (n int) {
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// graphHeight is the height of the graph. Its width is the number of steps.
const graphHeight = 60

// Points are the points of the line of a rate: its whole steps.
func (t throughput) Points(r rate) string {
	var points strings.Builder
	for i, c := range r.Counts[:rateSteps-1] {
		fmt.Fprintf(&points, "%d,%.1f ", i, graphHeight-1-float64(c)/float64(t.Most)*(graphHeight-2))
	}
	return strings.TrimSpace(points.String())
}
