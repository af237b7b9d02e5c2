package simulated_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// A worker has taken over an instance with a long step. A start of another execution arrives and waits. A
// termination arrives later and ends the step at once. Then the other execution starts.
func TestSteps_OfATakenOverInstanceAreTerminatedBesideAWaitingStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 3, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
		defer account.End()
		var runs, ends atomic.Int32
		long := func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
			return durable.Step(ctx, "long", func(ctx context.Context) (durable.Void, error) {
				runs.Add(1)
				<-ctx.Done()
				ends.Add(1)
				return durable.Void{}, context.Cause(ctx)
			}).Await()
		}
		parent := func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
			return durable.CallSubOrchestrator(ctx, long, durable.Void{}, durable.InstanceID("i")).Await()
		}
		registry := durable.NewRegistry(durable.Orchestrator("Long", long), durable.Orchestrator("Parent", parent))
		run := func(name string) (client *durable.Client, kill, stop func()) {
			w := account.Worker(name)
			hub := openWith(t, name, account, w)
			ctx, cancel := context.WithCancel(chance.With(context.WithoutCancel(t.Context()), account.Chance(name)))
			ended := make(chan error, 1)
			go func() {
				ended <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
			}()
			stop = func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			return durable.NewClient(hub, registry), w.Kill, stop
		}
		first, kill, stop := run("w1")
		time.Sleep(3 * time.Second)
		if _, err := durable.Start(t.Context(), first, long, durable.Void{}, durable.InstanceID("i")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		kill()
		stop()
		second, _, stop := run("w2")
		defer stop()
		for range 600 {
			if runs.Load() == 2 {
				break
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if _, err := durable.Start(t.Context(), second, parent, durable.Void{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		before := ends.Load()
		if err := durable.InstanceOf[durable.Void](second, "i").Terminate(t.Context(), "why"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // an idle queue is polled rarely
		if runs.Load() != 3 || ends.Load() != before+1 {
			t.Errorf("%d runs, want 3; %d ended before the termination, and %d by now, want one more", runs.Load(), before, ends.Load())
		}
	})
}
