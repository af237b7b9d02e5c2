package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// A PartitionManager is a way to keep who reads which control queue. Workers of
// one hub must all use the same: they do not see each other's leases otherwise.
type PartitionManager int

const (
	// TablePartitions keeps a row for each partition in the hub's partitions
	// table. It is the default of the .NET extension 3.x.
	TablePartitions PartitionManager = iota
	// SafeBlobLeases keeps two blobs for each partition, one that says who is to
	// have it and one that says who has it. It is the default of the .NET
	// extension 2.x.
	SafeBlobLeases
	// LegacyBlobLeases keeps one blob for each partition. While a partition moves
	// from or to a worker in .NET, both may read its queue for some seconds; each
	// instance is still written by one of them only.
	LegacyBlobLeases
)

var partitionManagerNames = [...]string{"table", "safe blob-lease", "legacy blob-lease"}

// String returns the manager's name, such as "table".
func (m PartitionManager) String() string {
	if m < 0 || int(m) >= len(partitionManagerNames) {
		return fmt.Sprintf("PartitionManager(%d)", int(m))
	}
	return partitionManagerNames[m]
}

// A PartitionManagerError says that workers are at work on a hub that keep its
// partitions in another way than this one. Each would read all queues.
type PartitionManagerError struct {
	TaskHub    string
	Configured PartitionManager
	Active     PartitionManager
}

// Error names both managers.
func (e *PartitionManagerError) Error() string {
	return fmt.Sprintf("task hub %s is being worked on with the %s partition manager, but the %s partition manager is configured here: "+
		"configure the same everywhere (useTablePartitionManagement, useLegacyPartitionManagement), or stop the other workers first",
		e.TaskHub, e.Active, e.Configured)
}

// checkManagers returns a *PartitionManagerError if leases of another kind of
// partition manager are alive.
func (h *TaskHub) checkManagers(ctx context.Context) error {
	active, err := h.leases.Active(ctx)
	if err != nil {
		return err
	}
	for kind := range partitionManagerNames {
		if other := PartitionManager(kind); active[leases.Kind(kind)] && other != h.cfg.PartitionManager {
			return &PartitionManagerError{TaskHub: h.cfg.TaskHub, Configured: h.cfg.PartitionManager, Active: other}
		}
	}
	return nil
}

// awaitSoleManager waits until no worker is active with another kind of
// partition manager, for as long as leases of workers that have just stopped
// can last; then it gives up. That storage for one exists says nothing: tools
// make it.
func (h *TaskHub) awaitSoleManager(ctx context.Context) error {
	for deadline := time.Now().Add(2 * h.cfg.LeaseInterval); ; {
		err := h.checkManagers(ctx)
		mismatch, isMismatch := errors.AsType[*PartitionManagerError](err)
		switch {
		case ctx.Err() != nil, err == nil:
			return nil
		case !isMismatch:
			h.health.Failed("look at the partitions", err)
		case time.Now().After(deadline):
			return mismatch
		default:
			h.log.Warn("waiting for other workers to stop", "reason", mismatch)
		}
		if !store.Sleep(ctx, store.Jitter(ctx, "look at the partitions", h.cfg.LeaseInterval/10)) {
			return nil
		}
	}
}

// newLeases returns what the worker's partitions are kept by. Its requests are not bound
// in number, so that keeping a partition never waits behind the work on it.
func (h *TaskHub) newLeases(s *store.Services) *leases.Worker {
	w := &leases.Worker{
		ID: h.cfg.WorkerID, Kind: leases.Kind(h.cfg.PartitionManager), App: leases.App(h.cfg.AppLease), Names: h.names,
		Interval: h.cfg.LeaseInterval, AcquireInterval: h.cfg.LeaseAcquireInterval, DrainTimeout: h.cfg.DrainTimeout,
		Table:        store.NewTable(s.Leases, s.TableEndpoint, h.names.PartitionsTable()),
		Blobs:        store.NewContainer(s.LeaseBlobs, s.BlobEndpoint, h.names.Leases()),
		AppBlobs:     h.appLeases,
		TableLatency: s.TablePace.Latency, Missing: h.noteMissing, Health: &h.health, Log: h.log, Meter: h.meter, Tasks: &h.tasks,
	}
	for _, p := range h.partitions {
		w.Partitions = append(w.Partitions, p)
	}
	return w
}
