package simulated_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

func TestLoad_CountsMessagesAndWorkers(t *testing.T) {
	for _, m := range managers {
		t.Run(m.String(), func(t *testing.T) {
			inFleet(t, azurestorage.Config{PartitionManager: m, PartitionCount: 1, MaxQueuePollingInterval: time.Second}, func(f *fleet) {
				h, _ := f.hub("client", nil)
				client := durable.NewClient(h, durable.NewRegistry())
				for i := range 3 {
					if _, err := client.StartByName(f.Context(), "HelloSequence", nil, durable.InstanceID(fmt.Sprintf("hello-%d", i))); err != nil {
						f.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				load, err := h.Load(f.Context())
				if err != nil {
					f.Fatal(err)
				}
				q := load.ControlQueues[0]
				if len(load.ControlQueues) != 1 || q.Length != 3 || q.Stored != 3 || q.Latency < time.Minute || q.Latency > time.Minute+10*time.Second || load.WorkItems.Length != 0 || load.Workers != 0 {
					f.Errorf("without a worker the load is %+v", *load)
				}
				f.join("one", nil)
				if _, err := client.StartByName(f.Context(), "HelloSequence", nil, durable.StartAt(time.Now().Add(time.Hour))); err != nil {
					f.Fatal(err)
				}
				time.Sleep(time.Minute)
				if load, err = h.Load(f.Context()); err != nil {
					f.Fatal(err)
				}
				if q := load.ControlQueues[0]; q.Length != 0 || q.Stored != 1 || q.Latency != 0 || load.Workers != 1 {
					f.Errorf("with a worker the load is %+v", *load)
				}
			})
		})
	}
}

// No message represents a step. The load includes the steps of the worker in this process.
func TestLoad_CountsTheStepsOfThisProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
		defer account.End()
		hub, registry := open(t, account.Worker("w1"), account), takeoverRegistry(false)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			cfg := durable.Config{Logger: slog.New(slog.DiscardHandler), MaxConcurrentActivities: 2}
			if err := durable.NewWorker(hub, registry, cfg).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Second)
		for i := range 5 { // each runs three steps of a minute
			if _, err := durable.Start(ctx, durable.NewClient(hub, registry), threeSteps, 60_000, durable.InstanceID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		load, err := hub.Load(ctx)
		if err != nil || load.Steps.Length != 5 || load.Steps.Latency < 25*time.Second || load.Steps.Latency > time.Minute {
			t.Errorf("with 5 steps and 2 slots the load is %+v, %v", load, err)
		}
		other, err := open(t, account.Worker("w2"), account).Load(ctx)
		if err != nil || other.Steps.Length != 0 {
			t.Errorf("in another process the load is %+v, %v", other, err)
		}
		time.Sleep(time.Hour)
		if load, err = hub.Load(ctx); err != nil || load.Steps.Length != 0 || load.Steps.Latency != 0 {
			t.Errorf("after the steps the load is %+v, %v", load, err)
		}
		stop()
		running.Wait()
	})
}
