package console

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Rates are counted per rateStep, for the last rateTime. The overview updates once per rateStep.
const (
	rateStep  = 5 * time.Second
	rateTime  = 10 * time.Minute
	rateSteps = int(rateTime/rateStep) + 1 // includes the current step
)

// counted lists the statuses that are counted, with the titles of their counts.
var counted = [...]struct {
	status history.RuntimeStatus
	title  string
}{{history.Running, "Started"}, {history.Completed, "Completed"}, {history.Failed, "Failed"}}

// rates counts the orchestrations that started and ended in this process. Its size is constant.
type rates struct {
	mu    sync.Mutex // guards steps
	steps [rateSteps]stepCounts
}

// stepCounts holds the counts of one step, in the order of counted.
type stepCounts struct {
	step   int64 // steps since 1970
	counts [len(counted)]int
}

func rateStepOf(t time.Time) int64 { return t.UnixNano() / int64(rateStep) }

// add counts an orchestration that has reached a status.
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

// A throughput holds the counts of the last rateTime.
type throughput struct {
	Rates []rate
	Most  int // the highest count in a step, at least 1
}

// A rate holds the counts of one status per step. The last step is the current one.
type rate struct {
	Title  string
	Counts [rateSteps]int
}

// lately returns the counts up to now.
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

// Class returns the style class of the rate's line.
func (r rate) Class() string { return strings.ToLower(r.Title) }

// PerSecond returns the rate in the last complete step.
func (r rate) PerSecond() string { return perSecond(r.Counts[rateSteps-2]) }

// MostPerSecond returns the highest rate, which is the upper end of the graph.
func (t throughput) MostPerSecond() string { return perSecond(t.Most) }

func perSecond(count int) string {
	return fmt.Sprintf("%.4g/s", float64(count)/rateStep.Seconds())
}

// All returns the sum of the counts.
func (r rate) All() (n int) {
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// graphHeight is the height of the graph. Its width is the number of steps.
const graphHeight = 60

// Points returns the points of a rate's line, for all complete steps.
func (t throughput) Points(r rate) string {
	var points strings.Builder
	for i, c := range r.Counts[:rateSteps-1] {
		fmt.Fprintf(&points, "%d,%.1f ", i, graphHeight-1-float64(c)/float64(t.Most)*(graphHeight-2))
	}
	return strings.TrimSpace(points.String())
}
