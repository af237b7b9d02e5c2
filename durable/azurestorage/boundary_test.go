package azurestorage

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestBoundaries_OfStarts(t *testing.T) {
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
}
