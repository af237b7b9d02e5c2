package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
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

// manager returns what decides which partitions this worker reads.
func (h *TaskHub) manager() partitionManager {
	if h.cfg.PartitionManager == TablePartitions {
		return newTablePartitions(h)
	}
	return newBlobPartitions(h)
}

// partitionManager acquires partitions, keeps them, and gives them up when ctx
// has ended. run returns when no partition is held any more, or when work has
// ended.
type partitionManager interface {
	run(ctx, work context.Context)
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
			h.health.failed("look at the partitions", err)
		case time.Now().After(deadline):
			return mismatch
		default:
			h.log.Warn("waiting for other workers to stop", "reason", mismatch)
		}
		if !store.Sleep(ctx, store.Jitter(ctx, passPace, h.cfg.LeaseInterval/10)) {
			return nil
		}
	}
}

// checkManagers returns a *PartitionManagerError if leases of another kind of
// partition manager are alive.
func (h *TaskHub) checkManagers(ctx context.Context) error {
	active := map[PartitionManager]bool{}
	if h.cfg.PartitionManager != TablePartitions {
		rows, ahead, err := h.readPartitionRows(ctx, h.leasesTable)
		if err != nil && !store.IsNotFound(err) {
			return err
		}
		for _, row := range rows {
			if row.CurrentOwner != "" && row.ExpiresAt.After(time.Now().Add(ahead)) {
				active[TablePartitions] = true
			}
		}
	}
	pages := h.leaseBlobs.Client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if store.IsNotFound(err) {
			break
		}
		if err != nil {
			return fmt.Errorf("list leases: %w", err)
		}
		for _, item := range page.Segment.BlobItems {
			folder, _, _ := strings.Cut(*item.Name, "/")
			kind, known := managerOf[folder]
			if known && item.Properties != nil && item.Properties.LeaseState != nil && *item.Properties.LeaseState == lease.StateTypeLeased {
				active[kind] = true
			}
		}
	}
	for kind := range partitionManagerNames {
		if other := PartitionManager(kind); active[other] && other != h.cfg.PartitionManager {
			return &PartitionManagerError{TaskHub: h.cfg.TaskHub, Configured: h.cfg.PartitionManager, Active: other}
		}
	}
	return nil
}

// managerOf says whose leases are in a folder.
var managerOf = map[string]PartitionManager{
	defaultLeases: LegacyBlobLeases, intentLeases: SafeBlobLeases, ownershipLeases: SafeBlobLeases,
}
