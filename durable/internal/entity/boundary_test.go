package entity

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfRequests(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	name := func(due time.Duration) string { return EventName(at.Add(due), at) }
	boundary.Check(t, "the longest delay of a signal", func(offset int) string { return name(longestDelay + time.Duration(offset)*time.Second) },
		name(longestDelay-time.Second), "op@2026-01-08T03:04:05.0000000Z", "op@2026-01-08T03:04:05.0000000Z")
	const window = 30 * time.Minute
	now := at.Add(57300 * time.Microsecond)
	boundary.Check(t, "labels far ahead of the clock have a narrow spread", func(offset int) time.Duration {
		return spreadOffset(now, now.Add(farAhead+time.Duration(offset)), window)
	}, 57300*time.Microsecond, 57300*time.Microsecond, 300*time.Microsecond)
	boundary.Check(t, "labels half a short window ahead have a narrow spread", func(offset int) time.Duration {
		return spreadOffset(now, now.Add(30*time.Second+time.Duration(offset)), time.Minute)
	}, 57300*time.Microsecond, 57300*time.Microsecond, 300*time.Microsecond)
	boundary.Check(t, "two requests at one instant get different labels", func(offset int) time.Duration {
		var s Sorter
		var first, second Request
		s.LabelPassedOn(&first, "to", at, window)
		s.RecordSent(&first, "to")
		s.LabelPassedOn(&second, "to", at.Add(time.Duration(2*offset)*tick), window)
		return second.Timestamp.Sub(at) / tick
	}, 1, 1, 2)
	m := &memory{}
	boundary.Check(t, "a batch is old", func(offset int) bool { return m.isOld(at, at.Add(rerunTime+time.Duration(offset)), rerunTime) }, false, false, true)
}
