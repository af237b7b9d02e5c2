package coro_test

import (
	"runtime"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// BenchmarkSwitch measures one Park with its wake-up.
func BenchmarkSwitch(b *testing.B) {
	var g coro.Group
	var r *coro.Routine
	g.Go(func() {
		for {
			r = g.Running()
			g.Park()
		}
	})
	g.Run()
	b.ReportAllocs()
	for b.Loop() {
		g.Wake(r, r.Ticket())
		g.Run()
	}
	g.Close()
}

// BenchmarkStartToFinish measures a coroutine that does nothing.
func BenchmarkStartToFinish(b *testing.B) {
	var g coro.Group
	b.ReportAllocs()
	for b.Loop() {
		g.Go(func() {})
		g.Run()
	}
}

// BenchmarkUnwind measures the unwinding of a parked coroutine.
func BenchmarkUnwind(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var g coro.Group
		g.Go(func() { g.Park() })
		g.Run()
		g.Close()
	}
}

// BenchmarkParked reports the memory of a parked coroutine.
func BenchmarkParked(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var g coro.Group
		for range n {
			g.Go(func() { g.Park() })
		}
		g.Run()
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap := int64(after.HeapInuse) - int64(before.HeapInuse)
		stack := int64(after.StackInuse) - int64(before.StackInuse)
		b.ReportMetric(float64(heap)/n, "heapB/routine")
		b.ReportMetric(float64(stack)/n, "stackB/routine")
		g.Close()
	}
}

func BenchmarkInRoutine(b *testing.B) {
	var g coro.Group
	g.Go(func() {
		for b.Loop() {
			coro.InRoutine()
		}
	})
	g.Run()
}
