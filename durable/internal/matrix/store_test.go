package matrix_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// process is a process of a hub: a client and a worker that has not run.
type process struct {
	client provider.Client
	worker provider.Worker
	close  func() error
}

// store is a kind of hub.
type store struct {
	name string
	// create creates an empty hub and returns a function that opens the hub in a new process. The previous
	// process has been closed.
	create func(t *testing.T) (open func() (process, error))
}

var stores = []store{{"memory", inMemory}, {"file", inFile}, {"tables", inTables}, {"log", inLog}}

var logger = slog.New(slog.DiscardHandler)

func inMemory(*testing.T) func() (process, error) {
	hub := memhub.New()
	return func() (process, error) {
		return process{hub, hub.NewWorker(), func() error { return nil }}, nil
	}
}

func inFile(t *testing.T) func() (process, error) {
	path := filepath.Join(t.TempDir(), "hub.db")
	return func() (process, error) {
		hub, err := embedded.Open(path, embedded.Config{Relaxed: true, Logger: logger})
		return process{hub, hub, hub.Close}, err
	}
}

// account returns a simulated account, and a function that returns a connection to it from a new process.
func account(t *testing.T) func() (w *azsim.Worker, c azurestorage.Connection, err error) {
	a := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
	t.Cleanup(a.End)
	n := 0
	return func() (*azsim.Worker, azurestorage.Connection, error) {
		n++
		c, err := azurestorage.ParseConnectionString(a.ConnectionString())
		return a.Worker(fmt.Sprint("w", n)), c, err
	}
}

func inTables(t *testing.T) func() (process, error) {
	connect := account(t)
	return func() (process, error) {
		w, c, err := connect()
		if err != nil {
			return process{}, err
		}
		hub, err := azurestorage.Open(c, azurestorage.Config{
			PartitionCount: 2, LeaseInterval: time.Minute, LeaseAcquireInterval: 20 * time.Second, WorkerID: w.Name(), Transport: w, Logger: logger,
		})
		return process{hub, hub, func() error { return nil }}, err
	}
}

func inLog(t *testing.T) func() (process, error) {
	connect := account(t)
	return func() (process, error) {
		w, c, err := connect()
		if err != nil {
			return process{}, err
		}
		hub, err := partitionlog.Open(c, partitionlog.Config{
			PartitionCount: 2, BalanceInterval: 10 * time.Second, WorkerID: w.Name(), Transport: w, Logger: logger,
		})
		return process{hub, hub, hub.Close}, err
	}
}
