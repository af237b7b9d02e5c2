package simulated_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// Requests of two workers fail at random in all ways. The audit has each record once.
func TestTracking_NoRecordIsLostOrDuplicatedWhenRequestsFail(t *testing.T) {
	faults := []azsim.Fault{azsim.Throttle, azsim.FailBefore, azsim.FailAfter, azsim.RefuseAfter, azsim.Slow}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			var armed, failed atomic.Int32
			decide := func(r azsim.Request) azsim.Fault {
				if armed.Load() == 0 || r.Worker == "client" || r.Roll%5 != 0 {
					return azsim.None
				}
				failed.Add(1)
				return faults[r.Roll/5%uint64(len(faults))]
			}
			inAudit(t, seed, decide, func(a *audited) {
				a.work("w1")
				a.work("w2")
				time.Sleep(time.Minute)
				a.startBoth()
				armed.Store(1)
				time.Sleep(time.Minute)
				armed.Store(0)
				a.finished()
			})
			if failed.Load() < 10 {
				t.Errorf("%d requests have failed, want at least 10", failed.Load())
			}
		})
	}
}

// An audit costs one message per checkpoint, which is put and deleted. No request reads the table.
func TestTracking_CostsOneMessagePerCheckpoint(t *testing.T) {
	inAudit(t, 1, nil, func(a *audited) {
		a.work("w1")
		time.Sleep(time.Minute)
		before := len(a.account.Log())
		if _, err := a.client.StartByName(a.Context(), "HelloSequence", nil, durable.InstanceID("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		counts := map[string]int{}
		for _, e := range a.account.Log()[before:] {
			if strings.Contains(e.Path, "audit-tracking") || strings.Contains(e.Path, "InstanceHistory00Audit") {
				counts[e.Operation]++
			}
		}
		if counts["PutMessage"] != 4 || counts["DeleteMessage"] != 4 || counts["QueryEntities"] != 0 {
			t.Errorf("%v, want 4 messages put and deleted, and 0 queries", counts)
		}
	})
}
