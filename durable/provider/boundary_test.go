package provider

import (
	"errors"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfQueriesAndDelays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	created := func(offset int) *InstanceState { return &InstanceState{CreatedAt: at.Add(time.Duration(offset))} }
	boundary.Check(t, "created from", func(offset int) bool { return (&Query{CreatedFrom: at}).Matches(created(offset)) }, false, true, true)
	boundary.Check(t, "created to", func(offset int) bool { return (&Query{CreatedTo: at}).Matches(created(offset)) }, true, true, false)
	boundary.Check(t, "created at one moment", func(offset int) bool {
		return (&Query{CreatedFrom: at, CreatedTo: at}).Matches(created(offset))
	}, false, true, false)
	boundary.Check(t, "a page ends at its size", func(offset int) bool {
		room := (&Query{PageBytes: 10}).PageBudget()
		text := string(make([]byte, 10+offset))
		room.Subtract(&InstanceState{Input: &text})
		return room.Remaining() == 0
	}, false, true, true)
	boundary.Check(t, "work that is held until a time", func(offset int) time.Duration {
		return AbandonDelay(&RetryAtError{Cause: errors.New("why"), At: at}, at.Add(time.Duration(offset)), time.Minute)
	}, 1, 0, 0)
	boundary.Check(t, "work that is held for longer than the usual delay", func(offset int) time.Duration {
		return AbandonDelay(&RetryAtError{Cause: errors.New("why"), At: at.Add(time.Minute)}, at.Add(time.Duration(offset)), time.Minute)
	}, time.Minute, time.Minute, time.Minute-1)
}
