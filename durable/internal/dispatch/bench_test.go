package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// untilEnd waits in real time until an instance has completed.
func (b *bench) untilEnd(id string) {
	b.Helper()
	for {
		s, err := b.Instance(b.Context(), id, provider.Fetch{})
		if err != nil {
			b.Fatal(err)
		}
		if s.Status.IsTerminal() {
			if s.Status != history.Completed {
				b.Fatalf("instance %s is %v", id, s.Status)
			}
			return
		}
		time.Sleep(20 * time.Microsecond)
	}
}

func quiet(c *dispatch.Config) { c.Logger = discard }

// BenchmarkHelloSequence runs an orchestration with four episodes and three activities.
func BenchmarkHelloSequence(b *testing.B) {
	for _, way := range bothWays {
		b.Run(way.name, func(b *testing.B) {
			hub := newBench(b)
			hub.work(helloFunctions, way.change, quiet)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprint(i)
				hub.start(id, "HelloSeq", nil)
				hub.untilEnd(id)
			}
		})
	}
}

// BenchmarkEpisode measures one episode of an orchestration with a long history: it takes an
// event and sends another.
func BenchmarkEpisode(b *testing.B) {
	const episodes = 500
	for _, way := range bothWays {
		b.Run(way.name, func(b *testing.B) {
			hub := newBench(b)
			hub.work(one(func(x *replay.Execution, _ *string) (*string, error) {
				for range episodes {
					x.SendEvent(x.Instance().InstanceID, "go", nil)
					waitEvent(x, "go")
				}
				return nil, nil
			}), way.change, quiet)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprint(i)
				hub.start(id, "O", nil)
				hub.untilEnd(id)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/episodes, "ns/episode")
		})
	}
}

// BenchmarkFanOut runs an orchestration that schedules a thousand activities at once.
func BenchmarkFanOut(b *testing.B) {
	hub := newBench(b)
	hub.work(one(func(x *replay.Execution, _ *string) (*string, error) {
		tasks := make([]*replay.Future, 1000)
		for i := range tasks {
			tasks[i] = begin(x, "Hello", "x")
		}
		for _, f := range tasks {
			f.Await()
		}
		return nil, nil
	}), quiet)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint(i)
		hub.start(id, "O", nil)
		hub.untilEnd(id)
	}
}

// BenchmarkContinueAsNew measures one generation of a loop that never waits.
func BenchmarkContinueAsNew(b *testing.B) {
	hub := newBench(b)
	hub.work(one(countDown), quiet)
	b.ReportAllocs()
	hub.start("i", "O", b.N)
	b.ResetTimer()
	hub.untilEnd("i")
}

// BenchmarkBlockedRemove measures a commit's call of remove while 10,000 other instances are held back.
func BenchmarkBlockedRemove(b *testing.B) {
	var waiting dispatch.BlockedFunctions
	for i := range 10_000 {
		waiting.Add(fmt.Sprint(i), time.Now())
	}
	b.ReportAllocs()
	for b.Loop() {
		waiting.Remove("running")
	}
}
