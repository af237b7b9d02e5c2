// Package conformance_test checks azurestorage in Azurite against the contract of providers. These
// tests mostly wait; in a separate package they run in parallel with the tests of azurestorage.
package conformance_test

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/provider/providertest"
)

func TestMain(m *testing.M) { azuritetest.Main(m) }

var hubNumber atomic.Int32

func TestTaskHub_FulfillsTheProviderContract(t *testing.T) {
	t.Parallel()
	// The whole suite also runs on simulated accounts.
	providertest.ExerciseSample(t, 100, providertest.WithoutWrapper, func(t *testing.T) providertest.Hub {
		t.Parallel()
		connection := azuritetest.Start(t)
		cfg := azurestorage.Config{
			TaskHub:                 fmt.Sprintf("C%dx%d", os.Getpid(), hubNumber.Add(1)),
			PartitionCount:          2,
			MaxQueuePollingInterval: 100 * time.Millisecond,
			LeaseInterval:           6 * time.Second, // also the longest visibility timeout of messages
			LeaseAcquireInterval:    200 * time.Millisecond,
			DrainTimeout:            400 * time.Millisecond,
			MaxConcurrentActivities: 8,
			Logger:                  slog.New(slog.DiscardHandler),
		}
		alive := new(atomic.Bool)
		open := func() *azurestorage.TaskHub {
			alive = new(atomic.Bool)
			alive.Store(true)
			cfg.Transport = azuritetest.WhileAlive(connection, alive)
			c, err := azurestorage.ParseConnectionString(connection)
			if err != nil {
				t.Fatal(err)
			}
			hub, err := azurestorage.Open(c, cfg)
			if err != nil {
				t.Fatal(err)
			}
			return hub
		}
		return providertest.Hub{
			Provider: open(),
			Reopen:   func(*testing.T) provider.Provider { return open() },
			Kill: func(*testing.T) provider.Provider {
				alive.Store(false)
				return open()
			},
			OpenEmpty: func(*testing.T) provider.Provider {
				cfg.TaskHub += "other"
				return open()
			},
			Damage: func(t *testing.T, id string) {
				azuritetest.Damage(t.Context(), t, connection, nil, cfg.TaskHub, id)
			},
			Patience:     patience.MaxWait,
			Quiet:        100 * time.Millisecond,
			DrainTimeout: cfg.DrainTimeout,
			IsRealTime:   true,
			Visibility:   6 * time.Second,
			Order:        providertest.OrderUnlessReturned, // of Azurite; Azure Storage guarantees less
			AbandonDelay: time.Second,                      // the delay is two seconds, but the service counts in whole seconds
		}
	})
}
