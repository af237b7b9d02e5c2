package durable_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// many is the input of callMany: the number of activities, and whether to call them in
// sequence.
type many struct {
	N       int  `json:"n"`
	InTurns bool `json:"inTurns"`
}

func callMany(ctx *durable.Context, in many) (sum int, err error) {
	var tasks []*durable.Task[int]
	for i := range in.N {
		task := durable.CallActivity(ctx, count, "Tokyo")
		if !in.InTurns {
			tasks = append(tasks, task)
			continue
		}
		n, err := task.Await()
		if err != nil {
			return i, err
		}
		sum += n
	}
	values, err := durable.AwaitAll(ctx, tasks...)
	for _, n := range values {
		sum += n
	}
	return sum, err
}

// BenchmarkReplay replays completed activities through the typed API.
func BenchmarkReplay(b *testing.B) {
	code, _ := durable.EngineOf(authors(durable.Orchestrator("Main", callMany))).Orchestrator("Main", "")
	for _, n := range []int{1_000, 100_000} {
		for _, inTurns := range []bool{false, true} {
			started := replaytest.Epoch
			begin := &history.OrchestratorStarted{Header: history.NewHeader(started)}
			end := &history.OrchestratorCompleted{Header: history.NewHeader(started)}
			past := []history.Event{begin, &history.ExecutionStarted{Input: new(fmt.Sprintf(`{"n":%d,"inTurns":%t}`, n, inTurns))}}
			scheduled := func(id int) history.Event {
				return &history.TaskScheduled{Header: history.Header{EventID: id}, Name: "Count"}
			}
			for i := range n {
				if inTurns {
					past = append(past, scheduled(i), end, begin, done(i, "5"))
				} else {
					past = append(past, scheduled(i))
				}
			}
			for i := range n {
				if !inTurns {
					past = append(past, end, begin, done(i, "5"))
				}
			}
			b.Run(fmt.Sprintf("inTurns=%t/%d", inTurns, n), func(b *testing.B) {
				b.ReportAllocs()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for b.Loop() {
					x := replay.New(history.OrchestrationInstance{}, code)
					if got := replaytest.Describe(x.Episode(past, []history.Event{begin}).Actions); got != fmt.Sprintf("%d Completed %d\n", n, 5*n) {
						b.Fatal(got)
					}
					x.Close()
				}
				runtime.ReadMemStats(&after)
				events := float64(b.N) * float64(len(past))
				b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/events, "allocs/event")
			})
		}
	}
}
