package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// recordedHub has one instance with a given history.
type recordedHub struct {
	provider.Provider
	events []history.Event
}

func (h recordedHub) Instance(context.Context, string, provider.Fetch) (*provider.InstanceState, error) {
	return &provider.InstanceState{Name: "Many", Status: history.Running}, nil
}

func (h recordedHub) History(context.Context, string) ([]history.Event, error) { return h.events, nil }

// Verify and Why each cost one replay of the history.
func BenchmarkReplayInMemory(b *testing.B) {
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
		c := durable.NewClient(recordedHub{memhub.New(), events}, r)
		for name, do := range map[string]func() error{
			"verify": func() error { return r.Verify(events) },
			"why": func() error {
				w, err := c.Why(b.Context(), "i")
				if err == nil && w.Reasons[0].Kind != durable.ReasonEvent {
					err = fmt.Errorf("reasons are %v, want an event", w.Reasons)
				}
				return err
			},
		} {
			b.Run(fmt.Sprint(name, "/", n, " events"), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
			})
		}
	}
}
