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

// untilState waits in real time until an entity has a state.
func (b *bench) untilState(key, want string) {
	b.Helper()
	for b.entityState(counterID(key)) != want {
		time.Sleep(20 * time.Microsecond)
	}
}

// BenchmarkEntitySignals has clients send a thousand signals, to one entity or to
// a thousand, and waits until all took effect.
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

// BenchmarkEntityCall measures the round trip of a call: an orchestration makes a
// hundred of them, one after the other.
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

// BenchmarkEntityBatch measures what the engine does for a batch of a hundred
// signals, without a hub.
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

// idleEntities has n entities do something, and returns how much of the heap the
// worker keeps when all are idle: what becomes free when it stops. What the hub
// stores of them is not in it.
func idleEntities(b *bench, n int) int64 {
	b.Helper()
	stop := b.work(entityFunctions, extendedSessions, quiet, func(c *dispatch.Config) { c.ExtendedSessionIdle = 10 * time.Millisecond })
	for i := range n {
		b.signal(counterID(fmt.Sprint(i)), "add", 1, time.Time{})
		for i%500 == 499 && b.Pending() > 0 { // the hub is slow if much is on its way
			time.Sleep(time.Millisecond)
		}
	}
	for b.Pending() > 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Second) // until no session waits for more
	with := heapInUse()
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	kept := with - heapInUse()
	runtime.KeepAlive(b.Hub)
	return kept
}

// BenchmarkIdleEntity reports what a worker keeps in memory of each of 100,000
// idle entities: nothing, but for a list of the last 10,000 that it worked on.
func BenchmarkIdleEntity(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		b.ReportMetric(float64(idleEntities(newBench(b), n))/n, "heapB/entity")
	}
}

// A goroutine for each of these entities alone would take 30 MB.
func TestEntity_IdleOnesTakeNoMemory(t *testing.T) {
	testshare.LeaveToFull(t)
	const n = 12_000
	bubble(t, func(b *bench) {
		if kept := idleEntities(b, n); kept > 10_000_000 {
			b.Errorf("%d idle entities take %d bytes of memory", n, kept)
		}
	})
}
