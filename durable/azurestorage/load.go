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
	if err := h.resources.ensureCreated(ctx); err != nil {
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
		owners, err := h.leases.Owners(groupCtx)
		load.Workers = len(owners)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("read the hub's load: %w", err)
	}
	return load, nil
}
