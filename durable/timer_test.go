package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

const day = 24 * time.Hour

func sleeper(ctx *durable.Context, d time.Duration) (string, error) {
	due, err := ctx.Timer(d).Await()
	return fmt.Sprint(due.Sub(replaytest.Epoch), " at ", ctx.Now().Sub(replaytest.Epoch)), err
}

func TestTimer_IsDueAfterItsDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		d    time.Duration
		want string
	}{
		{"later", time.Minute, "0 timer 1m0s"},
		{"immediately", 0, "0 timer 0s"},
		{"in the past", -time.Hour, "0 timer -1h0m0s"},
		{"in parts of 100 ns", 1234 * time.Nanosecond, "0 timer 1.2µs"},
		{"the longest single timer", 6 * day, "0 timer 144h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, sleeper)
			wantActions(t, s.Start(c.d), c.want)
			s.Now = s.Now.Add(7 * day)
			s.Episode(fired(0))
			due := c.d.Truncate(100 * time.Nanosecond)
			wantOutput(t, s, fmt.Sprintf("%q", fmt.Sprint(due, " at ", 7*day)))
		})
	}
}

func TestTimer_LongerThanSixDaysHasLegsOfThreeDays(t *testing.T) {
	t.Parallel()
	s := stage(t, sleeper)
	wantActions(t, s.Start(10*day+time.Hour), "0 timer 72h0m0s")
	s.Now = replaytest.Epoch.Add(3*day + time.Second) // the leg fires slightly late
	wantActions(t, s.Episode(fired(0)), "1 timer 144h0m1s")
	s.Now = replaytest.Epoch.Add(6*day + 2*time.Second)
	wantActions(t, s.Episode(fired(1)), "2 timer 241h0m0s")
	s.Now = replaytest.Epoch.Add(10*day + time.Hour)
	wantActions(t, s.Episode(fired(1), fired(2)), `3 Completed "241h0m0s at 241h0m0s"`)
}

func TestBoundaries_OfTimers(t *testing.T) {
	t.Parallel()
	boundary.Check(t, "a timer of six days has one leg", func(offset int) string {
		return replaytest.Describe(stage(t, sleeper).Start(6*day + time.Duration(offset)*100))
	}, "0 timer 143h59m59.9999999s\n", "0 timer 144h0m0s\n", "0 timer 72h0m0s\n")
	boundary.Check(t, "a leg that fires when the whole timer is due is the last", func(offset int) string {
		s := stage(t, sleeper)
		s.Start(7 * day)
		s.Now = replaytest.Epoch.Add(7*day + time.Duration(offset)*100)
		return replaytest.Describe(s.Episode(fired(0)))
	}, "1 timer 168h0m0s\n", "1 Completed \"168h0m0s at 168h0m0s\"\n", "1 Completed \"168h0m0s at 168h0m0.0000001s\"\n")
}

func TestTimer_LegThatFiresLateIsTheLast(t *testing.T) {
	t.Parallel()
	s := stage(t, sleeper)
	s.Start(7 * day)
	s.Now = replaytest.Epoch.Add(30 * day)
	wantActions(t, s.Episode(fired(0)), `1 Completed "168h0m0s at 720h0m0s"`)
}

func TestTimer_FiresAlthoughTheClockOfTheEpisodeIsBehind(t *testing.T) {
	t.Parallel()
	s := stage(t, sleeper)
	s.Start(time.Minute)
	s.Now = replaytest.Epoch.Add(59 * time.Second)
	wantActions(t, s.Episode(fired(0)), `1 Completed "1m0s at 59s"`)
}

func TestTimer_LongTimerCanLoseARace(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		return number.Wait(ctx).AwaitTimeout(9 * day)
	})
	s.Start(nil)
	s.Now = replaytest.Epoch.Add(3 * day)
	wantActions(t, s.Episode(fired(0)), "1 timer 216h0m0s")
	wantActions(t, s.Episode(raised("Number", "1")), "2 Completed 1")
}

func TestContext_NowAdvancesOnlyBetweenEpisodes(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]time.Duration, error) {
		began := ctx.Now()
		var got []time.Duration
		for range 2 {
			ctx.Sleep(time.Minute)
			got = append(got, ctx.Now().Sub(began))
		}
		return got, nil
	})
	s.Start(nil)
	s.Now = s.Now.Add(61 * time.Second)
	s.Episode(fired(0))
	s.Now = s.Now.Add(62 * time.Second)
	s.Episode(fired(1))
	wantOutput(t, s, "[61000000000,123000000000]")
}
