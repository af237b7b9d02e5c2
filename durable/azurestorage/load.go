package azurestorage

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Load implements [provider.LoadReporter]. It makes two requests for each
// queue, and one or two to count the workers
// (DurableTask.AzureStorage/Monitoring/DisconnectedPerformanceMonitor.cs,
// GetQueueMetricsAsync).
func (h *TaskHub) Load(ctx context.Context) (*provider.Load, error) {
	if err := h.ensureCreated(ctx); err != nil {
		return nil, fmt.Errorf("read the hub's load: %w", err)
	}
	load := &provider.Load{ControlQueues: make([]provider.QueueLoad, len(h.controlQueues))}
	group, groupCtx := errgroup.WithContext(ctx)
	measure := func(q *store.Queue, into *provider.QueueLoad) {
		group.Go(func() (err error) {
			*into, err = q.Load(groupCtx, time.Now())
			return err
		})
	}
	for i, q := range h.controlQueues {
		measure(q, &load.ControlQueues[i])
	}
	measure(h.workItems, &load.WorkItems)
	group.Go(func() (err error) {
		load.Workers, err = h.countWorkers(groupCtx)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("read the hub's load: %w", err)
	}
	return load, nil
}

// countWorkers returns how many workers have partitions now.
func (h *TaskHub) countWorkers(ctx context.Context) (int, error) {
	owners := map[string]bool{}
	if h.cfg.PartitionManager == TablePartitions {
		rows, ahead, err := h.readPartitionRows(ctx, h.partitionsTable)
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			if row.CurrentOwner != "" && row.ExpiresAt.After(time.Now().Add(ahead)) {
				owners[row.CurrentOwner] = true
			}
		}
		return len(owners), nil
	}
	folder := ownershipLeases
	if h.cfg.PartitionManager == LegacyBlobLeases {
		folder = defaultLeases
	}
	leases, err := h.leaseSet(folder).list(ctx, nil)
	if err != nil {
		return 0, err
	}
	for _, l := range leases {
		if l.Leased && l.Owner != "" {
			owners[l.Owner] = true
		}
	}
	return len(owners), nil
}
