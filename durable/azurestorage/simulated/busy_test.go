package simulated_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// A hub is not busy if its requests wait only briefly.
func TestBusy_IsFalseForAHubThatServesItsClientsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond, Delay: func(_ azsim.Request, underway int) time.Duration {
			return time.Duration(underway) * 2 * time.Millisecond // like a single-threaded service
		}})
		defer account.End()
		registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello))
		hub := openWith(t, "w", account, account.Worker("w"))
		client := durable.NewClient(hub, registry)
		ctx, stop := context.WithCancel(chance.With(t.Context(), account.Chance("w")))
		var running, callers sync.WaitGroup
		running.Go(func() {
			_ = durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		})
		time.Sleep(30 * time.Second)
		var refused, late atomic.Int64
		for n := range 300 {
			callers.Go(func() {
				for i := range 3 {
					if hub.IsBusy() {
						refused.Add(1)
					}
					inTime, cancel := context.WithTimeout(ctx, 30*time.Second)
					if _, err := durable.Start(inTime, client, helloSequence, durable.Void{}, durable.InstanceID(fmt.Sprintf("i-%d-%d", n, i))); err != nil {
						late.Add(1)
					}
					cancel()
				}
			})
		}
		callers.Wait()
		if refused.Load() > 0 || late.Load() > 0 {
			t.Errorf("%d of 900 starts would be rejected and %d failed; want 0", refused.Load(), late.Load())
		}
		stop()
		running.Wait()
	})
}
