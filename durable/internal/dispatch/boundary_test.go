package dispatch

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestBoundaries_OfTheDispatcher(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	boundary.Check(t, "an item fits beside others", func(offset int) bool { return fits(10*smallPayload, 5*smallPayload, 5*smallPayload+offset) },
		true, true, false)
	boundary.Check(t, "a small item always fits", func(offset int) bool { return fits(10*smallPayload, 10*smallPayload, smallPayload+offset) },
		true, true, false)
	boundary.Check(t, "any item fits alone", func(offset int) bool { return fits(10*smallPayload, 1+offset, 11*smallPayload) }, true, false, false)
	boundary.Check(t, "a small item is not counted", func(offset int) int { return counted(smallPayload + offset) }, 0, 0, smallPayload+1)
	policy := unknownPolicy{after: time.Minute}
	boundary.Check(t, "work of an unknown function fails", func(offset int) bool {
		return policy.fails(at, at.Add(time.Minute+time.Duration(offset)), false)
	}, false, true, true)
	boundary.Check(t, "an instance can start at its scheduled time", func(offset int) time.Time {
		return dueOf(&history.ExecutionStarted{Header: history.Header{Timestamp: at}, ScheduledStart: at.Add(time.Duration(offset))})
	}, at, at, at.Add(1))
	boundary.Check(t, "a small result", func(offset int) bool {
		text := string(make([]byte, maxSmallResult+offset))
		return taskResult{output: &text}.isSmall()
	}, true, true, false)
	boundary.Check(t, "the time of an episode is later than now if a timer fired early", func(offset int) bool {
		due := at.Add(time.Duration(offset))
		return episodeTime([]history.Event{&history.TimerFired{FireAt: due}}, at).After(at)
	}, false, false, true)
	for _, early := range []time.Duration{1, time.Millisecond, 999 * time.Millisecond, time.Second, time.Hour} {
		for _, now := range []time.Time{at, at.Add(123456789)} {
			due := now.Add(early)
			if got := episodeTime([]history.Event{&history.TimerFired{FireAt: due}, &history.TimerFired{FireAt: now}}, now); got.Before(due) {
				t.Errorf("a timer fired %v early: the episode has the time %v before its due time", early, due.Sub(got))
			}
		}
	}
}
