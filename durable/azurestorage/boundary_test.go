package azurestorage

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestBoundaries_OfStartsAndDelays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(d time.Duration, offset int) time.Time { return at.Add(d + time.Duration(offset)) }
	pending := &provider.InstanceState{Status: history.Pending}
	pending.LastUpdatedAt = at
	boundary.Check(t, "a pending instance is overdue", func(offset int) bool { return isOverdue(pending, after(startOverdue, offset)) }, false, false, true)
	direct := &wire.InstanceRow{DirectStartAt: at}
	direct.State.Status, direct.State.LastUpdatedAt = history.Pending, at
	if !direct.AwaitsDirectStart() {
		t.Fatal("the row does not await a direct start")
	}
	boundary.Check(t, "a direct start is interrupted", func(offset int) bool { return isInterrupted(direct, after(interruptedAfter, offset)) }, false, true, true)
	scheduled := &provider.InstanceState{Status: history.Pending, ScheduledAt: at.Add(10 * time.Second)}
	boundary.Check(t, "a held start reappears one second after its time", func(offset int) time.Duration {
		return startDelay(scheduled, 5, after(0, offset*int(time.Second)))
	}, 12*time.Second, 11*time.Second, 10*time.Second)
	boundary.Check(t, "the longest delay of an abandoned message", func(offset int) time.Duration { return abandonDelay(10 + offset) },
		512*time.Second, maxAbandonDelay, maxAbandonDelay)
	boundary.Check(t, "the shortest delay of an abandoned message", abandonDelay, time.Second, time.Second, 2*time.Second)
	due := func(d time.Duration) *provider.TaskMessage {
		return &provider.TaskMessage{Event: &history.TimerFired{FireAt: at.Add(d)}}
	}
	boundary.Check(t, "a message that is due is not hidden", func(offset int) time.Duration {
		return visibilityDelay(due(time.Duration(offset)*time.Second), at)
	}, 0, 0, time.Second)
	boundary.Check(t, "hidden times are whole seconds", func(offset int) time.Duration { return visibilityDelay(due(time.Second+time.Duration(offset)), at) },
		0, time.Second, time.Second)
	boundary.Check(t, "the longest hidden time", func(offset int) time.Duration {
		return visibilityDelay(due(maxVisibility+time.Duration(offset)*time.Second), at)
	}, maxVisibility-time.Second, maxVisibility, maxVisibility)
	boundary.Check(t, "a visibility timeout is at most the lease interval", func(offset int) time.Duration {
		return lockTime(30*time.Second, time.Duration(30+offset)*time.Second)
	}, 29*time.Second, 30*time.Second, 30*time.Second)
	boundary.Check(t, "a visibility timeout has whole seconds", func(offset int) time.Duration {
		return lockTime(2*time.Second+time.Duration(offset), time.Minute)
	}, time.Second, 2*time.Second, 2*time.Second)
}
