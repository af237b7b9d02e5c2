package azurestorage

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// storedSequence returns history rows in the format of the table service. Their orchestration
// called n activities one after another and waits for one more.
func storedSequence(n int) [][]byte {
	const id, execution = "8747b3a46089446a9771b91d72f57a5a", "1c5f4050a76442e08367975e81734a5d"
	at := time.Date(2026, 11, 20, 18, 34, 3, 41447400, time.UTC)
	var rows [][]byte
	add := func(ev history.Event) {
		at = at.Add(1234500)
		ev.Head().Timestamp = at
		row := wire.EncodeHistoryRow(ev, id, len(rows), execution)
		rows = append(rows, recordings.AsReturned(row.JSON()))
	}
	head := history.Header{EventID: history.NoEventID}
	add(&history.OrchestratorStarted{Header: head})
	add(&history.ExecutionStarted{
		Header: head, Name: "Sequence", Input: new("null"), Generation: new(0),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: execution},
	})
	for i := range n + 1 {
		add(&history.TaskScheduled{Header: history.Header{EventID: i}, Name: "SayHello"})
		add(&history.OrchestratorCompleted{Header: head})
		if i < n {
			add(&history.OrchestratorStarted{Header: head})
			add(&history.TaskCompleted{Header: history.Header{EventID: -1, IsPlayed: true}, TaskScheduledID: i, Result: new(`"Hello Tokyo!"`)})
		}
	}
	return rows
}

// sequence calls activities one after another forever.
func sequence(x *replay.Execution, _ *string) (*string, error) {
	for {
		f := new(replay.Future)
		x.ScheduleTask(f, "SayHello", nil)
		f.Await()
	}
}

// BenchmarkReplayOfStoredRows measures the load of an instance from the JSON of its rows to the
// point where the replayed orchestrator waits.
func BenchmarkReplayOfStoredRows(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		raw := storedSequence(n)
		size := 0
		for _, r := range raw {
			size += len(r)
		}
		measure := func(name string, f func(b *testing.B)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for b.Loop() {
					f(b)
				}
				runtime.ReadMemStats(&after)
				events := float64(b.N) * float64(len(raw))
				b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/events, "allocs/event")
			})
		}
		load := func(b *testing.B) []history.Event {
			var scanner wire.RowScanner
			known := instances.NewKnownEvents()
			events := make([]history.Event, len(raw))
			for i, r := range raw {
				row, err := scanner.Row(r)
				if err != nil {
					b.Fatal(err)
				}
				if events[i], err = row.Event(); err != nil {
					b.Fatal(err)
				}
				known.Add(events[i])
			}
			return events
		}
		begin := []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(time.Now())}}
		measure("rows to events", func(b *testing.B) { load(b) })
		measure("rows to replay", func(b *testing.B) {
			x := replay.New(history.OrchestrationInstance{}, sequence)
			if got := x.Episode(load(b), begin); len(got.Actions) != 0 {
				b.Fatal(got.Actions)
			}
			x.Close()
		})
		events := load(b)
		measure("events to replay", func(b *testing.B) {
			x := replay.New(history.OrchestrationInstance{}, sequence)
			if got := x.Episode(events, begin); len(got.Actions) != 0 {
				b.Fatal(got.Actions)
			}
			x.Close()
		})
	}
}
