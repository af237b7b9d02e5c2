package entity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// BenchmarkEntityBatch measures the cost of a batch without its operations: messages are
// decoded and ordered, and the state is stored.
func BenchmarkEntityBatch(b *testing.B) {
	for _, n := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint("signals=", n), func(b *testing.B) {
			batches := make([][]history.Event, 16) // with different IDs
			for i := range batches {
				for j := range n {
					name, text := entity.NewSignal(entity.DeriveID(fmt.Sprint(i), fmt.Sprint(j)), "get", nil, time.Time{}, noon)
					batches[i] = append(batches[i], &history.EventRaised{Name: name, Input: &text})
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				state := new(entity.State)
				work(b, state, batches[i%len(batches)], noon, settings)
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "operations/s")
		})
	}
}

// BenchmarkEntityOfManySenders measures one call of an entity that many orchestrations have
// called once within the reorder window. It runs on an exact hub and on one that is not exact.
func BenchmarkEntityOfManySenders(b *testing.B) {
	for i := range 6 {
		settings, senders := settings, []int{100, 1000, 10_000}[i%3]
		settings.ExactlyOnce = i >= 3
		b.Run(fmt.Sprintf("exact=%t/senders=%d", settings.ExactlyOnce, senders), func(b *testing.B) {
			state := new(entity.State)
			call := func(i int) history.Event {
				at := noon.Add(time.Duration(i) * time.Millisecond)
				id := entity.DeriveID(fmt.Sprint(i))
				r := entity.Request{ID: id, Operation: "get", Parent: id, ParentExecution: strings.ReplaceAll(id, "-", "")}
				r.Timestamp = at
				return op(r)
			}
			for i := 0; i < senders; {
				var events []history.Event
				for ; i < senders && len(events) < 100; i++ {
					events = append(events, call(i))
				}
				work(b, state, events, noon, settings)
				state.Settle()
			}
			b.ReportAllocs()
			for i := senders; b.Loop(); i++ {
				work(b, state, []history.Event{call(i)}, noon, settings)
				state.Settle()
			}
			b.ReportMetric(float64(len(state.Encode())), "B/state")
		})
	}
}

// work applies events to state as one batch.
func work(b *testing.B, state *entity.State, events []history.Event, now time.Time, settings entity.Settings) {
	b.Helper()
	batch, problems := entity.Begin("@counter@a", state, events, now, settings)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	for op, ok := batch.Next(); ok; op, ok = batch.Next() {
		batch.Done(recordedCounter(op))
	}
	batch.Finish("execution")
	if len(state.Encode()) == 0 {
		b.Fatal("the stored state is empty")
	}
}
