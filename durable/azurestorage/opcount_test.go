package azurestorage

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

// maxSequenceOperations is how many storage operations a sequence of three
// activities may take on one worker, without extended sessions: 12, and 3 more where the
// machine is so slow that the start gets into the queue and the row is written twice. .NET
// takes 33 to 36.
const maxSequenceOperations = 15

func TestTaskHub_NeedsFewOperationsForASequence(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.LeaseInterval, cfg.LeaseAcquireInterval = 60*time.Second, 30*time.Second
	counter := newCounter(t)
	cfg.Transport = counter
	h, _ := serving(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer runEngine(ctx, h)()
	defer cancel()
	isLook := func(c azuritetest.Call) bool {
		return c.Name == "QueryEntities" && strings.HasSuffix(c.Target, "Instances")
	}
	patience.Until(t, "the worker has looked for interrupted starts", func() bool { return counter.Total(isLook) > 0 })
	counter.Reset()
	mustStart(t, h, "counted", "e2", `1`)
	patience.Until(t, "it has completed", func() bool {
		return logged(h, "AppendedInstanceHistory", "counted", "rows=4") && counter.Total(isCommit) == 4
	})
	patience.Until(t, "its messages are deleted", func() bool {
		return counter.Total(func(c azuritetest.Call) bool { return c.Name == "DeleteMessage" }) >= 3 && heldCount(h) == 0
	})
	total := counter.Total(nil)
	t.Logf("%d operations:\n%s", total, counter)
	if total > maxSequenceOperations {
		t.Errorf("%d operations, want at most %d:\n%s", total, maxSequenceOperations, counter)
	}
}

// isCommit reports whether a call writes a history.
func isCommit(c azuritetest.Call) bool {
	return c.Name == "EntityGroupTransaction" && strings.HasSuffix(c.Target, "History")
}
