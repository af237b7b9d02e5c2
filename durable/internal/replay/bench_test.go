package replay_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// sequence calls n activities one after another, or without end if n is negative.
func sequence(n int) replay.Code {
	return func(x *replay.Execution, _ *string) (*string, error) {
		for i := 0; i != n; i++ {
			f := new(replay.Future)
			x.ScheduleTask(f, "Activity", nil)
			f.Await()
		}
		return nil, nil
	}
}

// sequenceHistory returns the history of a sequence that has completed n activities and
// scheduled another.
func sequenceHistory(n int) []history.Event {
	events := []history.Event{begin(), start(), task(0, "Activity"), end()}
	for i := range n {
		events = append(events, begin(), replaytest.Done(i, ""), task(i+1, "Activity"), end())
	}
	return events
}

// BenchmarkEpisode measures one episode of an orchestrator in memory: an activity completes,
// and the next is scheduled.
func BenchmarkEpisode(b *testing.B) {
	x := replay.New(history.OrchestrationInstance{}, sequence(-1))
	defer x.Close()
	x.Episode(nil, []history.Event{begin(), start()})
	fresh := []history.Event{begin(), nil}
	id := 0
	b.ReportAllocs()
	for b.Loop() {
		fresh[1] = &history.TaskCompleted{TaskScheduledID: id}
		if got := x.Episode(nil, fresh); len(got.Actions) != 1 {
			b.Fatal(replaytest.Describe(got.Actions))
		}
		id++
	}
}

// BenchmarkReplay measures the replay of completed activities, in a sequence and in a fan-out
// that completes in reverse order.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{1, 1_000, 100_000} {
		for _, shape := range []struct {
			name    string
			code    replay.Code
			history []history.Event
		}{
			{"sequence", sequence(-1), sequenceHistory(n)},
			{"fan-out", fanOut(n), fanOutHistory(n)},
		} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				b.ReportAllocs()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for b.Loop() {
					x := replay.New(history.OrchestrationInstance{}, shape.code)
					if got := x.Episode(shape.history, []history.Event{begin()}); len(got.Actions) != 0 {
						b.Fatal(replaytest.Describe(got.Actions))
					}
					x.Close()
				}
				runtime.ReadMemStats(&after)
				events := float64(b.N) * float64(len(shape.history))
				b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/events, "allocs/event")
			})
		}
	}
}

// BenchmarkParkedInstance reports the memory of an instance that waits for an activity while
// its orchestrator is in memory.
func BenchmarkParkedInstance(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { parkInstances(b, n) })
	}
}

func parkInstances(b *testing.B, n int) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]*replay.Execution, n)
		for i := range all {
			all[i] = replay.New(history.OrchestrationInstance{}, sequence(-1))
			all[i].Episode(nil, []history.Event{begin(), start()})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(n), "heapB/instance")
		b.ReportMetric(float64(int64(after.StackInuse)-int64(before.StackInuse))/float64(n), "stackB/instance")
		for _, x := range all {
			x.Close()
		}
	}
}
