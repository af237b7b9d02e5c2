package simulated_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// leaveBehind calls an activity that outlasts the execution, and continues as new n times.
func leaveBehind(ctx *durable.Context, n int) (string, error) {
	if n == 0 {
		return goOn.Wait(ctx).Await()
	}
	durable.CallActivity(ctx, lag, n)
	if n != 2 { // generation 2 ends in the episode in which it starts
		ctx.Sleep(time.Second)
	}
	return durable.ContinueAsNew(ctx, leaveBehind, n-1)
}

func lag(ctx context.Context, n int) (int, error) {
	select {
	case <-time.After(40 * time.Second):
	case <-ctx.Done():
	}
	return n, nil
}

// Results for earlier generations are discarded when they arrive, whichever worker ran the
// activity. The hub is idle afterwards.
func TestLateResult_OfAnEarlierGenerationIsDiscardedImmediately(t *testing.T) {
	for _, executor := range []string{"the same worker", "another worker"} {
		t.Run(executor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := azsim.New(azsim.Config{Seed: 3, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
				defer account.End()
				log := &lockedBuffer{}
				ctx, stop := context.WithCancel(t.Context())
				registry := durable.NewRegistry(durable.Orchestrator("LeaveBehind", leaveBehind), durable.Activity("Lag", lag))
				c, err := azurestorage.ParseConnectionString(account.ConnectionString())
				if err != nil {
					t.Fatal(err)
				}
				begin := func(name string) (client *durable.Client, stopped chan error) {
					hub, err := azurestorage.Open(c, azurestorage.Config{
						TaskHub: "Sim", PartitionCount: 1, WorkerID: name, Transport: account.Worker(name),
						Logger: slog.New(slog.NewTextHandler(log, nil)), MaxConcurrentActivities: 8,
					})
					if err != nil {
						t.Fatal(err)
					}
					stopped = make(chan error, 1)
					go func() {
						worker := durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)})
						stopped <- worker.Run(chance.With(ctx, account.Chance(name)))
					}()
					return durable.NewClient(hub, registry), stopped
				}
				client, first := begin("one")
				time.Sleep(time.Second)
				if executor == "another worker" {
					_, second := begin("two")
					defer func() {
						if err := <-second; err != nil {
							t.Error(err)
						}
					}()
					time.Sleep(time.Minute) // both workers poll the work-item queue
				}
				if _, err := durable.Start(ctx, client, leaveBehind, 3, durable.InstanceID("i")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				for _, queue := range account.Queues() {
					for _, m := range account.Messages(queue) {
						t.Errorf("left in %s: %s", queue, m.Text)
					}
				}
				if n := log.count("ReceivedOutOfOrderMessage"); n > 0 {
					t.Errorf("a result was held back %d times, want 0", n)
				}
				if n := log.count("DiscardingWorkItem"); n != 3 {
					t.Errorf("%d results were discarded, want 3:\n%s", n, strings.TrimSpace(log.all.String()))
				}
				stop()
				if err := <-first; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
