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

// A signal that could not be deleted is redelivered minutes later, after the entity has processed
// hundreds of others. The entity must not count it again.
func TestEntity_ProcessesAnUndeletedSignalOnce(t *testing.T) {
	t.Parallel()
	const others = 300
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		var failed atomic.Int64
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
			if r.Operation == "DeleteMessage" && failing.Load() {
				failed.Add(1)
				return azsim.FailBefore
			}
			return azsim.None
		}})
		defer account.End()
		hub := open(t, account.Worker("w1"), account)
		registry := durable.NewRegistry(durable.Entity("sum", durable.Op("Add", (*sum).Add)))
		client := durable.NewClient(hub, registry)
		work, stop := context.WithCancel(chance.With(t.Context(), account.Chance("w1")))
		ended := make(chan error)
		go func() {
			ended <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(work)
		}()
		add := func() {
			if err := durable.Signal(t.Context(), client, firstSum, (*sum).Add, 1); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(5 * time.Second)
		failing.Store(true)
		add()
		time.Sleep(time.Minute)
		failing.Store(false)
		if failed.Load() == 0 {
			t.Fatal("nothing was deleted")
		}
		for range others {
			add()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(30 * time.Minute)
		if n, err := durable.ReadEntity(t.Context(), client, firstSum); err != nil || n != others+1 {
			t.Errorf("the sum is %d, %v; want %d", n, err, others+1)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
