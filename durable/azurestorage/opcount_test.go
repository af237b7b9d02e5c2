package azurestorage

import (
	"context"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// The number of storage operations of a sequence of three activities, without
// extended sessions, is that of .NET.
func TestTaskHub_NeedsNoMoreOperationsThanNETForASequence(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.LeaseInterval, cfg.LeaseAcquireInterval = 60*time.Second, 30*time.Second
	counter := azuritetest.NewCounter(azuritetest.Start(t), nil)
	cfg.Transport = counter
	h := openHub(t, cfg)
	runHub(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer runEngine(ctx, h)()
	defer cancel()
	mustStart(t, h, "warm", "e1", `1`)
	awaitAll(t, h, 20*time.Second, []string{"warm"})
	eventually(t, "the work-item queue is empty", 5*time.Second, func() bool { return messageCount(t, h.workItems)+messageCount(t, h.controlQueues[0]) == 0 })
	counter.Reset()
	mustStart(t, h, "counted", "e2", `1`)
	eventually(t, "it has completed", 20*time.Second, func() bool {
		return logged(h, "AppendedInstanceHistory", "counted", "rows=4") && counter.Total(isCommit) == 4
	})
	eventually(t, "its messages are deleted", 5*time.Second, func() bool {
		return counter.Total(func(c azuritetest.Call) bool { return c.Name == "DeleteMessage" }) == 7
	})
	total := counter.Total(nil)
	t.Logf("%d operations:\n%s", total, counter)
	if total > 36 {
		t.Errorf("%d operations, want at most 36:\n%s", total, counter)
	}
}

func isCommit(c azuritetest.Call) bool { return c.Name == "EntityGroupTransaction" }
