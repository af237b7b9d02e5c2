package console

import (
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestRates_CountTheLastTenMinutesByStepsOfFiveSeconds(t *testing.T) {
	t.Parallel()
	var r rates
	start := time.Date(2026, 1, 5, 10, 0, 2, 0, time.UTC)
	for step := range 200 {
		for range step {
			r.add(history.Running, start.Add(time.Duration(step)*rateStep))
		}
	}
	now := start.Add(199 * rateStep)
	r.add(history.Failed, now)
	r.add(history.Failed, now)
	r.add(history.Failed, now.Add(-rateStep))
	r.add(history.Terminated, now) // not counted
	all := r.lately(now)
	if got := [...]string{all.Rates[0].Title, all.Rates[1].Title, all.Rates[2].Title}; got != [...]string{"Started", "Completed", "Failed"} {
		t.Errorf("it counts %q", got)
	}
	started, failed := all.Rates[0], all.Rates[2]
	if started.Counts[0] != 79 || all.Most != 199 || started.All() != (79+199)*121/2 || started.PerSecond() != "39.6/s" || all.MostPerSecond() != "39.8/s" {
		t.Errorf("%d ten minutes ago, at most %d (%s), %d in all, %s", started.Counts[0], all.Most, all.MostPerSecond(), started.All(), started.PerSecond())
	}
	if all.Rates[1].All() != 0 || failed.All() != 3 || failed.PerSecond() != "0.2/s" {
		t.Errorf("%d completed and %d failed, %s; want 0, 3 and 0.2/s", all.Rates[1].All(), failed.All(), failed.PerSecond())
	}
	if points := strings.Fields(all.Points(started)); len(points) != 120 || points[0] != "0,36.0" || points[119] != "119,1.3" {
		t.Errorf("the line has %d points: %q", len(points), points)
	}
	if later := r.lately(now.Add(rateTime)).Rates[0]; later.Counts[0] != 199 || later.All() != 199 {
		t.Errorf("ten minutes later there are %d, %d of them in the first step, want 199 of both", later.All(), later.Counts[0])
	}
	if later := r.lately(now.Add(rateTime + rateStep)).Rates[0]; later.All() != 0 {
		t.Errorf("after ten minutes there are %d, want none", later.All())
	}
}
