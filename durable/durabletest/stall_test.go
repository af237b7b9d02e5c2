package durabletest_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A blocking orchestrator waits until released is closed.
type blocking struct {
	released chan struct{}
	defers   bool  // a deferred call blocks
	only     int64 // number of the run that blocks; 0 means all runs
	runs     atomic.Int64
}

func (b *blocking) run(ctx *durable.Context, _ string) (string, error) {
	if n := b.runs.Add(1); b.only == 0 || n == b.only {
		if !b.defers {
			<-b.released
		}
		defer func() { <-b.released }()
	}
	d, err := Approval.Wait(ctx).Await()
	return d.By, err
}

func (b *blocking) functions() []*durable.Registration {
	return []*durable.Registration{durable.Orchestrator("Blocks", b.run)}
}

// stalls runs a test in a bubble, where a stall takes no real time, and checks its failure.
func stalls(t *testing.T, b *blocking, test func(t durabletest.TB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b.released = make(chan struct{})
		defer close(b.released)
		got := fails(t, test)
		contains(t, got, "durabletest: ", `orchestrator "Blocks" of instance "instance-1" does not yield`,
			"no durable call for 10s", "durabletest_test.(*blocking).run")
	})
}

func TestHub_FailsIfAnOrchestratorDoesNotYield(t *testing.T) {
	b := new(blocking)
	stalls(t, b, func(t durabletest.TB) { _, _ = durabletest.Run(durabletest.New(t, b.functions()...), b.run, "") })
	b = &blocking{only: 2} // the replay after the first episode
	stalls(t, b, func(t durabletest.TB) { _, _ = durabletest.Run(durabletest.New(t, b.functions()...), b.run, "") })
	b = &blocking{defers: true, only: 1} // when the test ends
	stalls(t, b, func(t durabletest.TB) { durabletest.Start(durabletest.New(t, b.functions()...), b.run, "") })
	b = &blocking{defers: true, only: 2}
	stalls(t, b, func(t durabletest.TB) { durabletest.Start(durabletest.New(t, b.functions()...), b.run, "") })
}

func TestReplay_FailsIfAnOrchestratorDoesNotYield(t *testing.T) {
	b := new(blocking)
	stalls(t, b, func(t durabletest.TB) {
		durabletest.ReplayEvents(t, b.functions(), []history.Event{
			&history.OrchestratorStarted{},
			&history.ExecutionStarted{Name: "Blocks", Instance: history.OrchestrationInstance{InstanceID: "instance-1"}},
		})
	})
	b = new(blocking)
	stalls(t, b, func(tb durabletest.TB) {
		durabletest.Replay(tb, b.functions(), file(t, `{"instanceId":"instance-1","historyEvents":[{"EventType":"ExecutionStarted","Timestamp":"2024-01-01T00:00:00Z","FunctionName":"Blocks","Input":"\"\""}]}`))
	})
}

// The caller's clock measures the limit, not the hub's.
func TestHub_WaitsWhileAnOrchestratorMakesProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx *durable.Context, _ string) (string, error) {
			for range 3 {
				time.Sleep(9 * time.Second)
				ctx.NewUUID()
			}
			ctx.Sleep(time.Hour)
			return "done", nil
		}
		out, err := durabletest.Run(durabletest.New(t, durable.Orchestrator("Slow", slow)), slow, "")
		if out != "done" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
	})
}
