package partitionlog_test

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

// TestMain works if this is a process of TestHub_LosesNothing….
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
	providertest.Exercise(t, exercised)
}

func exercised(t *testing.T) providertest.Hub {
	t.Parallel()
	connection := azuritetest.Start(t)
	cfg := partitionlog.Config{
		TaskHub:         fmt.Sprintf("C%dx%d", os.Getpid(), hubNumber.Add(1)),
		PartitionCount:  2,
		LeaseInterval:   15 * time.Second,
		BalanceInterval: 300 * time.Millisecond,
		AbandonDelay:    150 * time.Millisecond,
		DrainTimeout:    2 * time.Second,
		Logger:          slog.New(slog.DiscardHandler),
	}
	var alive *atomic.Bool
	var hub *partitionlog.Hub
	open := func() *partitionlog.Hub {
		alive = new(atomic.Bool)
		alive.Store(true)
		cfg.Transport = azuritetest.WhileAlive(connection, alive)
		c, err := azurestorage.ParseConnectionString(connection)
		if err != nil {
			t.Fatal(err)
		}
		h, err := partitionlog.Open(c, cfg)
		if err != nil {
			t.Fatal(err)
		}
		process := alive
		t.Cleanup(func() {
			if err := h.Close(); err != nil && process.Load() {
				t.Errorf("Close: %v", err)
			}
		})
		hub = h
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
			alive.Store(false)
			return open()
		},
		Another: func(*testing.T) provider.Provider {
			defer func(name string) { cfg.TaskHub = name }(cfg.TaskHub)
			cfg.TaskHub += "other"
			defer func(h *partitionlog.Hub) { hub = h }(hub)
			return open()
		},
		Damage: func(t *testing.T, id string) {
			if err := hub.Damage(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		Patience:     2 * time.Minute,
		Quiet:        100 * time.Millisecond,
		DrainTimeout: cfg.DrainTimeout,
		AbandonDelay: cfg.AbandonDelay,
		Order:        providertest.OrderAlways,
	}
}
