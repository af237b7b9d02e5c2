package durable_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// BenchmarkParkedInstance measures the memory of a waiting instance: heap and stack of
// an orchestrator that called an activity through the typed API. The history is not
// included.
func BenchmarkParkedInstance(b *testing.B) {
	code, _ := durable.EngineOf(authors(durable.Orchestrator("Main", helloSequence))).Orchestrator("Main", "")
	begin := []history.Event{
		&history.OrchestratorStarted{Header: history.NewHeader(replaytest.Epoch)},
		&history.ExecutionStarted{Name: "Main"},
	}
	for _, n := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				all := make([]*replay.Execution, n)
				for i := range all {
					all[i] = replay.New(history.OrchestrationInstance{}, code)
					if got := all[i].Episode(nil, begin); len(got.Actions) != 1 {
						b.Fatal(replaytest.Describe(got.Actions))
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(n), "heapB/instance")
				b.ReportMetric(float64(int64(after.StackInuse)-int64(before.StackInuse))/float64(n), "stackB/instance")
				for _, x := range all {
					x.Close()
				}
			}
		})
	}
}
