package azurestorage

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Load implements [provider.LoadReporter]. It makes two requests per queue, and one or two to count
// the workers (DurableTask.AzureStorage/Monitoring/DisconnectedPerformanceMonitor.cs,
// GetQueueMetricsAsync). It includes the steps of this process only.
func (h *TaskHub) Load(ctx context.Context) (*provider.Load, error) {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return nil, fmt.Errorf("read the hub's load: %w", err)
	}
	loads := make([]provider.QueueLoad, len(h.controlQueues)+1)
	load := &provider.Load{Owners: make([]string, len(h.controlQueues))}
	if h.running.Load() {
		load.Self = h.cfg.WorkerID
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return readLoads(groupCtx, h.messageQueues(), loads) })
	group.Go(func() (err error) {
		owners, err := h.leases.Owners(groupCtx)
		for i, q := range h.controlQueues {
			load.Owners[i] = owners[q.Name]
		}
		workers := map[string]bool{}
		for _, owner := range owners {
			workers[owner] = true
		}
		load.Workers = len(workers)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("read the hub's load: %w", err)
	}
	load.ControlQueues, load.WorkItems = loads[:len(loads)-1], loads[len(loads)-1]
	if steps := h.steps.Load(); steps != nil {
		load.Steps = (*steps)()
	}
	return load, nil
}

// ObserveSteps implements [provider.StepObserver].
func (h *TaskHub) ObserveSteps(steps func() provider.QueueLoad) { h.steps.Store(&steps) }

// QueuePosition implements [provider.QueuePositioner]. It is exact for an instance whose messages
// this process has received. For other instances it is an estimate from the length of the partition's
// queue. The length includes hidden messages, such as timers that are not due; the estimate is 0 if
// no message is visible.
func (h *TaskHub) QueuePosition(ctx context.Context, id string) (provider.QueuePosition, error) {
	if err := h.resources.ensureCreated(ctx); err != nil {
		return provider.QueuePosition{}, err
	}
	place := provider.QueuePosition{Partition: wire.PartitionOf(id, len(h.controlQueues))}
	if before, ready := h.inbox.Position(id); ready {
		place.Owner, place.MessagesAhead, place.IsExact = h.cfg.WorkerID, before, true
		return place, nil
	}
	queue := h.controlQueues[place.Partition]
	waits, err := queue.Load(ctx, time.Now())
	if err != nil {
		return place, err
	}
	owners, err := h.leases.Owners(ctx)
	place.Owner, place.MessagesAhead = owners[queue.Name], max(0, waits.Length-1)
	if err != nil {
		return place, err
	}
	place.StartMissing, err = h.lacksStart(ctx, id, queue)
	return place, err
}

// lacksStart reports whether an instance without a history seems to have no start message. It is
// not certain: a queue does not show hidden messages, and a direct start may have a hidden one.
func (h *TaskHub) lacksStart(ctx context.Context, id string, queue *store.Queue) (bool, error) {
	row, err := h.instances.Rows.Read(ctx, id)
	if err != nil || row == nil || row.State.Status != history.Pending || time.Since(instances.DueSince(&row.State)) < interruptedAfter {
		return false, err
	}
	if h.partitions.Of(id).HasStart(row.State.Instance) {
		return false, nil
	}
	if row.AwaitsDirectStart() {
		return true, nil
	}
	n, err := queue.Length(ctx)
	return n == 0, err
}

// Usage implements [provider.UsageReporter].
func (h *TaskHub) Usage() []provider.Usage {
	u := h.services.Usage
	return []provider.Usage{u.Queues.Usage(storageop.Queue), u.Tables.Usage(storageop.Table), u.Blobs.Usage(storageop.Blob)}
}

// readLoads reads the loads of queues.
func readLoads(ctx context.Context, queues []*store.Queue, loads []provider.QueueLoad) error {
	return store.ForEach(ctx, len(queues), queues, func(ctx context.Context, i int, q *store.Queue) (err error) {
		loads[i], err = q.Load(ctx, time.Now())
		return err
	})
}

// observeHub makes the metrics report the state of the hub as this worker knows it. stop ends that.
func (h *TaskHub) observeHub() (stop func()) {
	unregister, err := h.Meter.Observe(h.observe)
	if err != nil {
		h.Log.Warn("cannot report the state of the hub as metrics", "error", err)
		return func() {}
	}
	return func() { _ = unregister() } // fails only if called twice
}

// observeTimeout limits the duration of one observation of the hub. It is shorter than a collector of
// metrics waits, so that the other metrics arrive while storage is unreachable.
const observeTimeout = 5 * time.Second

// observe returns the state of the hub: the load of the queues that this worker reads, and what it
// knows about the hub. It makes two requests per queue, and one or two to read the owners.
func (h *TaskHub) observe(ctx context.Context) metering.HubState {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	queues, starts := []*store.Queue{h.workItems}, []*time.Duration{nil}
	for _, p := range h.partitions {
		if p.IsListening() {
			queues, starts = append(queues, p.Queue()), append(starts, new(p.OldestStart.Age(time.Now())))
		}
	}
	state := metering.HubState{Undecodable: h.undecodable.Counts(queues)}
	loads, owners := make([]provider.QueueLoad, len(queues)), map[string]string(nil)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return readLoads(groupCtx, queues, loads) })
	group.Go(func() (err error) {
		owners, err = h.leases.Owners(groupCtx)
		return err
	})
	if err := group.Wait(); err != nil {
		h.Log.Debug("cannot read the state of the hub for the metrics", "error", err)
		return state
	}
	state.Unowned = new(0)
	for _, q := range h.controlQueues {
		if owners[q.Name] == "" {
			*state.Unowned++
		}
	}
	for i, q := range queues {
		state.Queues = append(state.Queues, metering.QueueState{Queue: q.Name, Length: loads[i].Length, Latency: loads[i].Latency, StartLatency: starts[i]})
	}
	return state
}
