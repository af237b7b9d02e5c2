package simulated_test

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

// The hub fulfills the contract of providers on the simulated account as well as on Azurite. The
// account guarantees no more than the service does.
func TestTaskHub_FulfillsTheProviderContractInVirtualTime(t *testing.T) {
	for i, account := range []struct {
		name    string
		loose   bool
		latency time.Duration
	}{{"in any order", true, 10 * time.Millisecond}, {"in order", false, 10 * time.Millisecond}, {"slow", true, 2 * time.Second}} {
		if i%usual().sample != 0 {
			continue
		}
		t.Run(account.name, func(t *testing.T) {
			providertest.ExerciseIn(t, func(t *testing.T, test func(*testing.T)) {
				t.Parallel()
				synctest.Test(t, test)
			}, func(t *testing.T) providertest.Hub { return simulatedHub(t, account.loose, account.latency) })
		})
	}
}

func simulatedHub(t *testing.T, loose bool, latency time.Duration) providertest.Hub {
	account := azsim.New(azsim.Config{Seed: 1, MinLatency: latency / 10, MaxLatency: latency, Loose: loose})
	t.Cleanup(account.End)
	cfg := azurestorage.Config{
		TaskHub: "Sim", PartitionCount: 2, LeaseInterval: 15 * time.Second, LeaseAcquireInterval: 2 * time.Second,
		MaxQueuePollingInterval: time.Second, DrainTimeout: 3*time.Second + 10*latency, MaxConcurrentActivities: 8,
		Logger: slog.New(slog.DiscardHandler),
	}
	var worker *azsim.Worker
	opened := 0
	open := func() *azurestorage.TaskHub {
		worker = account.Worker("w")
		opened++
		cfg.Transport, cfg.WorkerID = worker, fmt.Sprint("w", opened) // the durations of requests depend on it
		c, err := azurestorage.ParseConnectionString(account.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		hub, err := azurestorage.Open(c, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return hub
	}
	order := providertest.OrderUnlessReturned
	if loose {
		order = providertest.OrderWithinFetch
	}
	return providertest.Hub{
		Order:    order,
		Provider: open(),
		Reopen:   func(*testing.T) provider.Provider { return open() },
		Kill: func(*testing.T) provider.Provider {
			worker.Kill()
			return open()
		},
		OpenEmpty: func(*testing.T) provider.Provider {
			cfg.TaskHub += "other"
			return open()
		},
		Damage: func(t *testing.T, id string) {
			azuritetest.Damage(t.Context(), t, account.ConnectionString(), account.Worker("damage"), cfg.TaskHub, id)
		},
		Patience: 10 * time.Minute, Quiet: time.Second, DrainTimeout: cfg.DrainTimeout, Visibility: 15 * time.Second,
	}
}
