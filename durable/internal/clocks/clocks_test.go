package clocks

import (
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// The clock that reaches the end first decides, whatever the other one shows.
func TestMoment_PassesByTheFirstClock(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	began := Moment{Mono: time.Hour, Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	end := began.Add(lease)
	for _, tt := range []struct {
		name       string
		mono, wall time.Duration // since the beginning of the lease
		left       time.Duration
	}{
		{"at the beginning", 0, 0, lease},
		{"just before the end", lease - 1, lease - 1, 1},
		{"at the end", lease, lease, 0},
		{"just after the end", lease + 1, lease + 1, -1},
		{"just before the end by one clock", lease - 1, lease, 0},
		{"just before the end by the other clock", lease, lease - 1, 0},
		{"after a sleep", 0, lease, 0},
		{"after a sleep that is shorter than the lease", 0, lease - 1, 1},
		{"after a long sleep", time.Second, time.Hour, lease - time.Hour},
		{"with the wall clock set back", lease, -time.Hour, 0},
		{"with the wall clock set back before the end", lease - 1, -time.Hour, 1},
		{"with the wall clock set forward", 0, time.Hour, lease - time.Hour},
	} {
		now := Moment{Mono: began.Mono + tt.mono, Wall: began.Wall.Add(tt.wall)}
		if left, passed := end.Left(now), end.HasPassed(now); left != tt.left || passed != (tt.left <= 0) {
			t.Errorf("%s: %v left, passed %t; want %v", tt.name, left, passed, tt.left)
		}
	}
}

func TestClock_SleepsAndIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var real *Clock
		c := &Clock{}
		before, realBefore, requested := c.Now(), real.Now(), time.Now()
		passed := func(mono, wall time.Duration) {
			t.Helper()
			now := c.Now()
			if m, w := now.Mono-before.Mono, now.Wall.Sub(before.Wall); m != mono || w != wall {
				t.Errorf("%v and %v have passed; want %v and %v", m, w, mono, wall)
			}
		}
		time.Sleep(time.Minute)
		passed(time.Minute, time.Minute)
		time.Sleep(time.Hour)
		c.Sleep(time.Hour)
		passed(time.Minute, time.Minute+time.Hour)
		c.Step(-2 * time.Hour)
		passed(time.Minute, time.Minute-time.Hour)
		c.Step(3 * time.Hour)
		passed(time.Minute, time.Minute+2*time.Hour)
		time.Sleep(time.Second)
		passed(time.Minute+time.Second, time.Minute+time.Second+2*time.Hour)
		if now := real.Now(); now != realBefore.Add(time.Hour+time.Minute+time.Second) || real.At(requested) != realBefore {
			t.Errorf("the clocks of this machine show %v after %v", now, realBefore)
		}
	})
}

type machine struct{ clock *Clock }

func (m machine) Clock() *Clock { return m.clock }

func TestOf_ReturnsTheClockOfASimulatedMachine(t *testing.T) {
	t.Parallel()
	c := &Clock{}
	if Of(machine{c}) != c || Of(nil) != nil || Of("another transport") != nil {
		t.Error("Of returns the clock of another machine")
	}
}
