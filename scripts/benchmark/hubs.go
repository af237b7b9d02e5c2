package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// hub is a task hub for a single measurement.
type hub struct {
	provider provider.Provider
	close    func() error
	requests *requests // requests to the storage account; nil for a local file
	slow     bool      // use fewer repetitions because each takes long
}

type opener func(o options, as setting) (hub, error)

// azureHub is the name of hubs in a storage account.
const azureHub = "azure"

// logHub is the name of hubs in a blob container.
const logHub = "log"

var hubs = map[string]opener{
	"embedded": func(o options, _ setting) (hub, error) { return openFile(o, false) },
	"relaxed":  func(o options, _ setting) (hub, error) { return openFile(o, true) },
	azureHub:   openAccount,
	logHub:     openLog,
}

func openFile(o options, relaxed bool) (hub, error) {
	dir, err := os.MkdirTemp(o.dir, "benchmark")
	if err != nil {
		return hub{}, err
	}
	h, err := embedded.Open(filepath.Join(dir, "hub.db"), embedded.Config{Relaxed: relaxed, Logger: quiet})
	if err != nil {
		return hub{}, errors.Join(err, os.RemoveAll(dir))
	}
	return hub{provider: h, close: func() error { return errors.Join(h.Close(), os.RemoveAll(dir)) }}, nil
}

// openAccount creates a hub with a new name. The hub stays in the account.
func openAccount(o options, as setting) (hub, error) {
	c, err := azurestorage.ParseConnectionString(o.connection)
	if err != nil {
		return hub{}, err
	}
	made := newRequests()
	cfg := azurestorage.Config{Transport: made, TaskHub: fmt.Sprintf("Bench%x", time.Now().UnixNano()), Logger: quiet}
	if as == tuned {
		cfg.MaxConcurrentActivities, cfg.ControlQueueBufferThreshold = concurrency, 1000
	}
	h, err := azurestorage.Open(c, cfg)
	if err != nil {
		return hub{}, err
	}
	return hub{provider: h, close: func() error { return nil }, requests: made, slow: true}, nil
}

// openLog creates a hub with a new name. The hub stays in the account.
func openLog(o options, as setting) (hub, error) {
	c, err := azurestorage.ParseConnectionString(o.connection)
	if err != nil {
		return hub{}, err
	}
	made := newRequests()
	cfg := partitionlog.Config{Transport: made, TaskHub: fmt.Sprintf("Bench%x", time.Now().UnixNano()), Logger: quiet}
	if as == tuned {
		cfg.PartitionCount = 1 // one is enough for one worker
	}
	h, err := partitionlog.Open(c, cfg)
	if err != nil {
		return hub{}, err
	}
	return hub{provider: h, close: h.Close, requests: made}, nil
}

var quiet = slog.New(slog.DiscardHandler)

// setting is a configuration of the hub and its worker.
type setting string

const (
	defaults setting = "defaults" // the default configuration
	tuned    setting = "tuned"    // tuned for two cores and these workloads
)

// concurrency is the maximum number of concurrent activities and of concurrent orchestrations when tuned.
const concurrency = 128

func (s setting) worker() durable.Config {
	cfg := durable.Config{Logger: quiet}
	if s == tuned {
		cfg.MaxConcurrentActivities, cfg.MaxConcurrentOrchestrators = concurrency, concurrency
	}
	return cfg
}

// rig is a hub with a worker and a client.
type rig struct {
	client   *durable.Client
	requests *requests
	slow     bool
	stop     func() error
}

// start runs a worker on h until the rig is stopped. It returns after a warm-up.
func start(ctx context.Context, h hub, as setting) (*rig, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- durable.NewWorker(h.provider, functions, as.worker()).Run(ctx) }()
	r := &rig{client: durable.NewClient(h.provider, functions), requests: h.requests, slow: h.slow}
	r.stop = func() error {
		cancel()
		return errors.Join(<-ended, h.close())
	}
	for i := range 8 { // probably at least one instance for each partition
		if err := r.complete(ctx, Hello, durable.InstanceID(fmt.Sprintf("warm-up-%d", i))); err != nil {
			return nil, errors.Join(fmt.Errorf("warm up: %w", err), r.stop())
		}
	}
	return r, nil
}

func join(errs ...error) error { return errors.Join(errs...) }

// complete starts an instance and waits until it has ended.
func (r *rig) complete(ctx context.Context, orchestrator func(*durable.Context, durable.Void) ([]string, error), opts ...durable.StartOption) error {
	i, err := durable.Start(ctx, r.client, orchestrator, durable.Void{}, opts...)
	if err != nil {
		return err
	}
	_, err = i.Wait(ctx)
	return err
}
