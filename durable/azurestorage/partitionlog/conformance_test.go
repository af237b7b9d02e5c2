package partitionlog_test

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

// TestMain runs a worker process if TestHub_LosesNothingWhenProcessesAreKilled started this
// process.
func TestMain(m *testing.M) {
	if arg := os.Getenv(childVariable); arg != "" {
		fmt.Fprintln(os.Stderr, workUntilKilled(arg))
		os.Exit(1)
	}
	azuritetest.Main(m)
}

var hubNumber atomic.Int32

func TestHub_KeepsThePromisesOfAProvider(t *testing.T) {
	t.Parallel()
	providertest.ExerciseSample(t, 2, func(t *testing.T, test func(*testing.T)) {
		t.Parallel()
		synctest.Test(t, test)
	}, simulatedHub)
}

func TestHub_KeepsThePromisesOfAProviderInAzurite(t *testing.T) {
	t.Parallel()
	providertest.ExerciseSample(t, 100, providertest.WithoutWrapper, func(t *testing.T) providertest.Hub {
		t.Parallel()
		connection := azuritetest.Start(t)
		hub := exercised(t, connection, func() (transport policy.Transporter, kill func()) {
			alive := new(atomic.Bool)
			alive.Store(true)
			return azuritetest.WhileAlive(connection, alive), func() { alive.Store(false) }
		})
		hub.Patience, hub.Quiet, hub.IsRealTime = patience.MaxWait, 100*time.Millisecond, true
		return hub
	})
}

// simulatedHub returns a hub on a simulated account, for a test in a bubble.
func simulatedHub(t *testing.T) providertest.Hub {
	account := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
	t.Cleanup(account.End)
	hub := exercised(t, account.ConnectionString(), func() (transport policy.Transporter, kill func()) {
		w := account.Worker("w")
		return w, w.Kill
	})
	hub.Patience, hub.Quiet = 10*time.Minute, time.Second
	return hub
}

// exercised returns a hub whose workers use the transports of newProcess.
func exercised(t *testing.T, connection string, newProcess func() (transport policy.Transporter, kill func())) providertest.Hub {
	cfg := partitionlog.Config{
		TaskHub:         fmt.Sprintf("C%dx%d", os.Getpid(), hubNumber.Add(1)),
		PartitionCount:  2,
		LeaseInterval:   15 * time.Second,
		BalanceInterval: 300 * time.Millisecond,
		AbandonDelay:    150 * time.Millisecond,
		DrainTimeout:    2 * time.Second,
		Logger:          slog.New(slog.DiscardHandler),
	}
	var kill func()
	var hub *partitionlog.Hub
	open := func() *partitionlog.Hub {
		var end func()
		cfg.Transport, end = newProcess()
		c, err := azurestorage.ParseConnectionString(connection)
		if err != nil {
			t.Fatal(err)
		}
		h, err := partitionlog.Open(c, cfg)
		if err != nil {
			t.Fatal(err)
		}
		killed := false
		t.Cleanup(func() {
			if err := h.Close(); err != nil && !killed {
				t.Errorf("Close: %v", err)
			}
		})
		hub, kill = h, func() { killed = true; end() }
		return h
	}
	open()
	return providertest.Hub{
		Provider: hub,
		Reopen: func(t *testing.T) provider.Provider {
			if err := hub.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return open()
		},
		Kill: func(*testing.T) provider.Provider {
			kill()
			return open()
		},
		OpenEmpty: func(*testing.T) provider.Provider {
			defer func(name string) { cfg.TaskHub = name }(cfg.TaskHub)
			cfg.TaskHub += "other"
			defer func(h *partitionlog.Hub, f func()) { hub, kill = h, f }(hub, kill)
			return open()
		},
		Damage: func(t *testing.T, id string) {
			if err := hub.Damage(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		DrainTimeout: cfg.DrainTimeout,
		AbandonDelay: cfg.AbandonDelay,
		Order:        providertest.OrderAlways,
	}
}
