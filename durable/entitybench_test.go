package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

// addUp calls a counter n times in sequence and returns its total.
func addUp(ctx *durable.Context, n int) (total int64, err error) {
	for range n {
		if total, err = durable.CallEntity(ctx, meter, (*counter).Add, 1).Await(); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// onMemhub runs a benchmark with a client of an in-memory hub that has a worker.
func onMemhub(b *testing.B, cfg durable.Config, bench func(ctx context.Context, c *durable.Client)) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	hub := memhub.New()
	registry := durable.NewRegistry(counters(), durable.Orchestrator("AddUp", addUp))
	cfg.Logger = slog.New(slog.DiscardHandler)
	stopped := make(chan error)
	go func() { stopped <- durable.NewWorker(hub, registry, cfg).Run(ctx) }()
	bench(b.Context(), durable.NewClient(hub, registry))
	stop()
	if err := <-stopped; err != nil {
		b.Error(err)
	}
}

// BenchmarkEntityCall measures a round trip from an orchestration to an entity,
// including all commits, on an in-memory hub.
func BenchmarkEntityCall(b *testing.B) {
	const calls = 100
	for _, extended := range []bool{false, true} {
		b.Run(fmt.Sprintf("extendedSessions=%t", extended), func(b *testing.B) {
			onMemhub(b, durable.Config{ExtendedSessionIdle: sessionIdle(extended)}, func(ctx context.Context, c *durable.Client) {
				b.ReportAllocs()
				for b.Loop() {
					i, err := durable.Start(ctx, c, addUp, calls)
					if err != nil {
						b.Fatal(err)
					}
					soon(b, func() bool {
						s, err := c.Status(ctx, i.ID, durable.Fetch{})
						return err == nil && s.Status == history.Completed
					})
				}
				b.ReportMetric(float64(b.N)*calls/b.Elapsed().Seconds(), "calls/s")
			})
		})
	}
}

// BenchmarkEntitySignals measures the time in which one entity processes a thousand
// signals of a client, on an in-memory hub.
func BenchmarkEntitySignals(b *testing.B) {
	const signals = 1000
	onMemhub(b, durable.Config{}, func(ctx context.Context, c *durable.Client) {
		b.ReportAllocs()
		sent := int64(0)
		for b.Loop() {
			for range signals {
				if err := durable.Signal(ctx, c, meter, (*counter).Add, 1); err != nil {
					b.Fatal(err)
				}
				sent++
			}
			soon(b, func() bool {
				s, err := durable.ReadEntity(ctx, c, meter)
				return err == nil && s.Total == sent
			})
		}
		b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "operations/s")
	})
}

// soon polls until holds returns true.
func soon(b *testing.B, holds func() bool) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			b.Fatal("the condition does not hold after a minute")
		}
	}
}

// BenchmarkEntityOperation measures one operation without a hub: it decodes, changes
// and encodes the state.
func BenchmarkEntityOperation(b *testing.B) {
	code, _ := durable.EngineOf(durable.NewRegistry(counters())).Entity("counter")
	op := entity.Operation{Entity: entity.ID{Name: "counter", Key: "k"}, Name: "add", Input: new("1"), State: new(`{"total":5}`)}
	b.ReportAllocs()
	for b.Loop() {
		if r := code(b.Context(), &op); r.Failure != nil {
			b.Fatal(r.Failure)
		}
	}
}
