package replay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

func TestRunStep_PollAtFollowsItsSchedule(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name   string
		policy replay.PollSchedule
		after  time.Duration
		want   string // number, last and next
	}{
		{"first", replay.PollSchedule{Interval: time.Second, Coefficient: 1, MaxInterval: day}, 0, "1 0s 1s"},
		{"a clock that is behind", replay.PollSchedule{Interval: time.Second, Coefficient: 1, MaxInterval: day}, -time.Minute, "1 0s 1s"},
		{"between", replay.PollSchedule{Interval: time.Second, Coefficient: 1, MaxInterval: day}, 2500 * time.Millisecond, "3 2s 3s"},
		{"exact", replay.PollSchedule{Interval: time.Second, Coefficient: 1, MaxInterval: day}, 3 * time.Second, "4 3s 4s"},
		{"a year", replay.PollSchedule{Interval: time.Second, Coefficient: 1, MaxInterval: day}, 365 * day, "31536001 8760h0m0s 8760h0m1s"},
		{"growing", replay.PollSchedule{Interval: time.Second, Coefficient: 2, MaxInterval: 10 * time.Second}, 7 * time.Second, "4 7s 15s"},
		{"grown", replay.PollSchedule{Interval: time.Second, Coefficient: 2, MaxInterval: 10 * time.Second}, 30 * time.Second, "6 25s 35s"},
		{"the maximum at once", replay.PollSchedule{Interval: time.Second, Coefficient: 1e9, MaxInterval: time.Second}, time.Minute, "61 1m0s 1m1s"},
		{"a huge coefficient", replay.PollSchedule{Interval: time.Second, Coefficient: 1e300, MaxInterval: time.Minute}, 61 * time.Second, "3 1m1s 2m1s"},
		{"hardly growing", replay.PollSchedule{Interval: time.Second, Coefficient: 1 + 1e-12, MaxInterval: time.Minute}, 365 * day, "31536000 8759h59m59.284s 8760h0m0.284s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			step := &replay.RunStep{DecidedAt: start, Poll: &tt.policy}
			n, last, next := step.PollAt(start.Add(tt.after))
			round := func(at time.Time) time.Duration { return at.Sub(start).Round(time.Millisecond) }
			if got := fmt.Sprint(n, round(last), round(next)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if !next.After(last) || tt.after >= 0 && (last.After(start.Add(tt.after)) || !next.After(start.Add(tt.after))) {
				t.Errorf("%v is not between %v and %v", tt.after, last.Sub(start), next.Sub(start))
			}
		})
	}
}
