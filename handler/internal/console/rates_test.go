package console

import (
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestRates_CountTheLastHourByMinute(t *testing.T) {
	t.Parallel()
	var r rates
	began := time.Date(2026, 1, 5, 10, 0, 30, 0, time.UTC)
	for minute := range 90 {
		for range minute {
			r.add(history.Running, began.Add(time.Duration(minute)*time.Minute))
		}
	}
	now := began.Add(89 * time.Minute)
	r.add(history.Failed, now)
	r.add(history.Failed, now)
	r.add(history.Terminated, now) // is not counted
	all := r.lately(now)
	if got := [...]string{all[0].Title, all[1].Title, all[2].Title}; got != [...]string{"Started", "Completed", "Failed"} {
		t.Errorf("it counts %q", got)
	}
	started, failed := all[0], all[2]
	if started.Now() != 89 || started.Counts[0] != 30 || started.Most() != 89 || started.All() != (30+89)*60/2 {
		t.Errorf("%d now, %d an hour ago, at most %d, %d in all", started.Now(), started.Counts[0], started.Most(), started.All())
	}
	if all[1].All() != 0 || failed.All() != 2 || failed.Now() != 2 {
		t.Errorf("%d completed and %d failed, want 0 and 2", all[1].All(), failed.All())
	}
	if points := strings.Fields(failed.Points()); len(points) != rateMinutes || points[0] != "0,19.0" || points[rateMinutes-1] != "59,1.0" {
		t.Errorf("the line has %d points: %q", len(points), points)
	}
	if later := r.lately(now.Add(59 * time.Minute)); later[0].Counts[0] != 89 || later[0].All() != 89 {
		t.Errorf("59 minutes later there are %d, of which %d an hour ago, want 89 of both", later[0].All(), later[0].Counts[0])
	}
	if later := r.lately(now.Add(time.Hour)); later[0].All() != 0 {
		t.Errorf("an hour later there are %d, want none", later[0].All())
	}
}
