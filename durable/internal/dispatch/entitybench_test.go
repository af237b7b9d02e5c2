package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
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
