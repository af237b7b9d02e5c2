package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Verifying that an instance can go on costs a replay of its history, and so does saying
// what it waits for.
func BenchmarkVerify(b *testing.B) {
	echo := func(_ context.Context, n int) (int, error) { return n, nil }
	many := func(ctx *durable.Context, n int) (string, error) {
		for i := range n {
			if _, err := durable.CallActivity(ctx, echo, i).Await(); err != nil {
				return "", err
			}
		}
		return signal.Wait(ctx).Await()
	}
	r := durable.NewRegistry(durable.Activity("Echo", echo), durable.Orchestrator("Many", many))
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprint(n, " events"), func(b *testing.B) {
			header := history.NewHeader(time.Now())
			events := []history.Event{&history.OrchestratorStarted{Header: header}, &history.ExecutionStarted{
				Header: header, Name: "Many", Input: new(fmt.Sprint(n / 4)), Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"},
			}}
			for i := range n / 4 {
				scheduled := &history.TaskScheduled{Header: header, Name: "Echo"}
				scheduled.EventID = i
				events = append(events, scheduled, &history.OrchestratorCompleted{Header: header}, &history.OrchestratorStarted{Header: header},
					&history.TaskCompleted{Header: header, TaskScheduledID: i, Result: new("1")})
			}
			events = append(events, &history.OrchestratorCompleted{Header: header})
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Verify(events); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
		})
	}
}
