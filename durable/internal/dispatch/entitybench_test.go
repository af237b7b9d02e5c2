package dispatch_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// untilState waits in real time until an entity has the given state.
func (b *bench) untilState(key, want string) {
	b.Helper()
	for b.entityState(counterID(key)) != want {
		time.Sleep(20 * time.Microsecond)
	}
}

// BenchmarkEntitySignals measures a thousand signals of clients to one entity or to a thousand,
// until all have taken effect.
func BenchmarkEntitySignals(b *testing.B) {
	const signals = 1000
	for _, entities := range []int{1, 1000} {
		for _, way := range bothWays {
			b.Run(fmt.Sprintf("entities=%d/%s", entities, way.name), func(b *testing.B) {
				hub := newBench(b)
				hub.work(entityFunctions, way.change, quiet)
				b.ReportAllocs()
				for i := 1; b.Loop(); i++ {
					for n := range signals {
						hub.signal(counterID(fmt.Sprint(n%entities)), "add", 1, time.Time{})
					}
					for n := range entities {
						hub.untilState(fmt.Sprint(n), fmt.Sprint(i*signals/entities))
					}
				}
				b.ReportMetric(float64(b.N)*signals/b.Elapsed().Seconds(), "operations/s")
			})
		}
	}
}

// BenchmarkEntityCall measures the round trip of a call: an orchestration makes a hundred calls
// one after another.
func BenchmarkEntityCall(b *testing.B) {
	const calls = 100
	for _, way := range bothWays {
		b.Run(way.name, func(b *testing.B) {
			hub := newBench(b)
			hub.work(functions{entities: entityFunctions.entities, orchestrators: map[string]replay.Code{
				"Calls": func(x *replay.Execution, _ *string) (*string, error) {
					for range calls {
						if _, err := callEntity(x, counterID("a"), "add", 1); err != nil {
							return nil, err
						}
					}
					return nil, nil
				},
			}}, way.change, quiet)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprint(i)
				hub.start(id, "Calls", nil)
				hub.untilEnd(id)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/calls, "µs/call")
		})
	}
}

// BenchmarkEntityBatch measures the engine's work for a batch of a hundred signals, without a
// hub.
func BenchmarkEntityBatch(b *testing.B) {
	hub := newBench(b)
	for range 100 {
		hub.signal(counterID("a"), "add", 1, time.Time{})
	}
	item, _ := hub.TryOrchestration()
	cfg := dispatch.Config{Logger: discard, Now: time.Now, NewID: func() string { return "e" }}
	b.ReportAllocs()
	for b.Loop() {
		var stepper dispatch.EntityStepper
		if _, err := stepper.Step(b.Context(), entityFunctions, cfg, item); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "operations/s")
}

// idleEntities runs an operation on each of n entities. It returns the heap memory that the
// worker holds when all are idle, which is the memory that its stop frees. The memory of the
// hub is not included.
func idleEntities(b *bench, n int) int64 {
	b.Helper()
	stop := b.work(entityFunctions, extendedSessions, quiet, func(c *dispatch.Config) { c.ExtendedSessionIdle = 10 * time.Millisecond })
	for i := range n {
		b.signal(counterID(fmt.Sprint(i)), "add", 1, time.Time{})
		for i%500 == 499 && b.Pending() > 0 { // the hub is slow if many messages are pending
			time.Sleep(time.Millisecond)
		}
	}
	for b.Pending() > 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Second) // until no session waits for messages
	with := heapInUse()
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	kept := with - heapInUse()
	runtime.KeepAlive(b.Hub)
	return kept
}

// BenchmarkIdleEntity reports the memory that a worker holds for each of 100,000 idle entities.
// It holds only a list of the last 10,000 entities.
func BenchmarkIdleEntity(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		b.ReportMetric(float64(idleEntities(newBench(b), n))/n, "heapB/entity")
	}
}

// One goroutine per entity would take 30 MB.
func TestEntity_IdleEntitiesTakeNoMemory(t *testing.T) {
	testshare.SkipInShortRuns(t)
	const n = 12_000
	bubble(t, func(b *bench) {
		if kept := idleEntities(b, n); kept > 10_000_000 {
			b.Errorf("%d idle entities take %d bytes of memory", n, kept)
		}
	})
}
