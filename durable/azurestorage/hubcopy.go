package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/hubcopy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Portable = (*TaskHub)(nil)

// A HiddenError says that there are messages in the queues of a hub that nobody
// can see at the moment, and that are not explained by the histories.
type HiddenError struct {
	TaskHub string
	// Hidden counts messages that are not explained: timers of executions that
	// were purged or have continued as new, signals that clients and entities sent
	// for later, messages that could not be processed and are held back.
	Hidden int
	// Missing counts what the histories say is under way and is not seen.
	Missing int
}

// Error says how many there are.
func (e *HiddenError) Error() string {
	return (*hubcopy.HiddenError)(e).Error()
}

// copier returns what copies the hub.
func (h *TaskHub) copier() *hubcopy.Hub {
	return &hubcopy.Hub{
		Name: h.cfg.TaskHub, Instances: h.instances, WorkItems: h.workItems, Queues: h.messageQueues(),
		QueueOf:   func(id string) *store.Queue { return h.partitionOf(id).queue },
		Aside:     h.asideOf,
		HiddenFor: max(h.cfg.ControlQueueVisibilityTimeout, h.cfg.WorkItemQueueVisibilityTimeout),
		Read:      h.readEnvelope,
		Send: func(ctx context.Context, q *store.Queue, env *wire.Envelope) error {
			_, err := h.send(ctx, q, env, true)
			return err
		},
		CheckIdle: h.checkIdle, Log: h.log,
	}
}

// Export implements [provider.Portable].
//
// Queues do not show what is hidden in them. Of that, timers and scheduled
// starts are made anew from the histories and the rows. What else the histories
// say must be there is waited for, for as long as a worker that died can have
// hidden it.
//
// The messages are received, which hides them for a few minutes, and made
// visible again at the end.
func (h *TaskHub) Export(ctx context.Context, w provider.HubWriter, o provider.ExportOptions) error {
	if err := h.checkExists(ctx); err != nil {
		return err
	}
	if err := h.checkIdle(ctx); err != nil {
		return err
	}
	err := h.copier().Export(ctx, w, o)
	if hidden, ok := errors.AsType[*hubcopy.HiddenError](err); ok {
		return (*HiddenError)(hidden)
	}
	return err
}

// Import implements [provider.Portable]. Histories and rows are written before
// any message, so that what is cut off has nothing that runs.
func (h *TaskHub) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := h.ensureCreated(ctx); err != nil {
		return err
	}
	if err := h.checkIdle(ctx); err != nil {
		return err
	}
	return h.copier().Import(ctx, fill)
}

// Totals implements [provider.Portable].
func (h *TaskHub) Totals(ctx context.Context) (totals provider.Totals, err error) {
	if err := h.checkExists(ctx); err != nil {
		return totals, err
	}
	return h.copier().Totals(ctx)
}

// checkExists fails if there is no such hub, rather than making one.
func (h *TaskHub) checkExists(ctx context.Context) error {
	n, err := h.countPartitions(ctx)
	switch {
	case store.IsNotFound(err):
		return fmt.Errorf("there is no task hub %s in the storage account", h.cfg.TaskHub)
	case err != nil:
		return fmt.Errorf("look for task hub %s: %w", h.cfg.TaskHub, err)
	case n != len(h.controlQueues):
		return &PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: len(h.controlQueues), Existing: n}
	}
	return nil
}

// countPartitions returns how many partitions the hub has, by what its partition manager
// keeps.
func (h *TaskHub) countPartitions(ctx context.Context) (int, error) {
	if h.cfg.PartitionManager != TablePartitions {
		return h.leases.CountPartitions(ctx)
	}
	rows, _, err := leases.ReadRows(ctx, h.partitionsTable)
	return len(rows), err
}

// checkIdle fails with [provider.ErrHubBusy] if a worker has a partition of the
// hub, whichever partition manager it uses.
func (h *TaskHub) checkIdle(ctx context.Context) error {
	rows, _, err := leases.ReadRows(ctx, h.partitionsTable)
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	for _, row := range rows {
		if row.CurrentOwner != "" && row.ExpiresAt.After(time.Now()) {
			return fmt.Errorf("%s: worker %s has partition %s until %s: %w", h.cfg.TaskHub, row.CurrentOwner, row.Queue,
				row.ExpiresAt.UTC().Format(time.TimeOnly), provider.ErrHubBusy)
		}
	}
	blobs := store.NewContainer(h.services.Blobs, h.services.BlobEndpoint, h.names.Leases())
	options := &container.ListBlobsFlatOptions{}
	for {
		var page container.ListBlobsFlatResponse
		err := store.Retry(ctx, "list blobs of "+blobs.Name, func(ctx context.Context) (err error) {
			page, err = blobs.Client.NewListBlobsFlatPager(options).NextPage(ctx)
			return err
		})
		if store.IsNotFound(err) {
			return nil // it is there only with the other partition managers
		}
		if err != nil {
			return err
		}
		for _, item := range page.Segment.BlobItems {
			if item.Properties != nil && store.Value(item.Properties.LeaseStatus) == lease.StatusTypeLocked {
				return fmt.Errorf("%s: a worker has the lease %s: %w", h.cfg.TaskHub, store.Value(item.Name), provider.ErrHubBusy)
			}
		}
		if store.Value(page.NextMarker) == "" {
			return nil
		}
		options.Marker = page.NextMarker
	}
}
