package azurestorage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/leases"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"golang.org/x/sync/errgroup"
)

// A PartitionCountError says that a hub has another number of partitions than
// was configured. Workers and clients that count differently would send the
// messages of one instance to different queues.
type PartitionCountError struct {
	TaskHub    string
	Configured int
	Existing   int
}

// Error names both numbers.
func (e *PartitionCountError) Error() string {
	return fmt.Sprintf("task hub %s has %d partitions, but PartitionCount is %d: use the hub's count, or a hub of another name",
		e.TaskHub, e.Existing, e.Configured)
}

// ensureCreated makes the hub exist. It does so once in the life of h, and
// again only after it failed, or after a request showed that the hub was deleted. One caller does it while the others wait.
func (h *TaskHub) ensureCreated(ctx context.Context) error {
	select {
	case h.creation <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("create task hub %s: %w", h.cfg.TaskHub, context.Cause(ctx))
	}
	defer func() { <-h.creation }()
	if h.created.Load() {
		return nil
	}
	if err := h.create(ctx); err != nil {
		return fmt.Errorf("create task hub %s: %w", h.cfg.TaskHub, err)
	}
	h.created.Store(true)
	return nil
}

// noteMissing notes that a queue or a table is not there, so that the hub is made
// again when it is used the next time.
func (h *TaskHub) noteMissing(err error) {
	if !h.created.CompareAndSwap(true, false) {
		return // not yet
	}
	h.log.Warn("part of the task hub was deleted: the hub is created again", "event", "GeneralWarning", "error", err)
	h.instances.ForgetAll(func(string) bool { return true })
	h.deleted.Give()
}

// recreate makes the hub again each time it was deleted, until ctx ends.
func (h *TaskHub) recreate(ctx context.Context) {
	for {
		select {
		case <-h.deleted:
		case <-ctx.Done():
			return
		}
		if err := h.awaitCreated(ctx); err != nil {
			h.log.Error("the task hub that was created instead of the deleted one cannot be used", "error", err)
		}
	}
}

// create makes what the hub is made of, in .NET's order; what is there already
// stays (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// EnsureTaskHubAsync and CreateAsync). The container for large messages comes
// to be with the first of them.
func (h *TaskHub) create(ctx context.Context) error {
	if err := h.appLeases.Create(ctx); err != nil {
		return err
	}
	if err := h.appLeases.CreateBlob(ctx, h.names.AppLeaseInfo(), []byte("{}")); err != nil {
		return err
	}
	if h.cfg.PartitionManager == TablePartitions {
		if err := h.partitionsTable.Create(ctx); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if h.cfg.PartitionManager == TablePartitions {
			return h.createPartitionRows(groupCtx)
		}
		return h.createLeaseBlobs(groupCtx)
	})
	if h.cfg.JumpStart.Enabled {
		group.Go(func() error { return h.starts.records.Table.Create(groupCtx) })
	}
	if h.cfg.Tracking {
		group.Go(func() error { return h.tracking.queue.Create(groupCtx) })
	}
	group.Go(func() error { return h.instances.Histories.Table.Create(groupCtx) })
	group.Go(func() error { return h.instances.Rows.Table.Create(groupCtx) })
	group.Go(func() error { return h.workItems.Create(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	// The control queues come last: there are none too many if the count is
	// wrong.
	group, groupCtx = errgroup.WithContext(ctx)
	for _, q := range h.controlQueues {
		group.Go(func() error { return q.Create(groupCtx) })
	}
	return group.Wait()
}

// createLeaseBlobs makes what the blob partition managers keep their leases in, and checks
// that the hub has as many partitions as are configured.
func (h *TaskHub) createLeaseBlobs(ctx context.Context) error {
	n, err := h.leases.CreateInfo(ctx, h.cfg.TaskHub)
	if err != nil {
		return err
	}
	if n != len(h.partitions) {
		return &PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: len(h.partitions), Existing: n}
	}
	return h.leases.CreateBlobs(ctx)
}

// partialRowsPatience is how long rows may be missing in the partitions table
// because somebody else is inserting them one by one, as .NET does.
const partialRowsPatience = 2 * time.Second

// createPartitionRows inserts the rows of all partitions in one transaction, if
// there are none yet, and checks their number if there are.
func (h *TaskHub) createPartitionRows(ctx context.Context) error {
	want := make([]store.Operation, len(h.controlQueues))
	for i, q := range h.controlQueues {
		want[i] = store.Operation{Method: http.MethodPost, Entity: wire.PartitionRow{Queue: q.Name}.Row()}
	}
	for deadline := time.Now().Add(partialRowsPatience); ; {
		rows, _, err := leases.ReadRows(ctx, h.partitionsTable)
		switch {
		case err != nil:
			return err
		case len(rows) == len(want):
			return nil
		case len(rows) == 0:
			err := store.Retry(ctx, "insert partition rows", func(ctx context.Context) error {
				_, err := h.partitionsTable.Transact(ctx, want)
				return err
			})
			if err != nil && !store.IsConflict(err) {
				return err
			}
		case len(rows) > len(want) || time.Now().After(deadline):
			return &PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: len(want), Existing: len(rows)}
		default:
			if !store.Sleep(ctx, store.Jitter(ctx, "partition rows", 200*time.Millisecond)) {
				return context.Cause(ctx)
			}
		}
	}
}
