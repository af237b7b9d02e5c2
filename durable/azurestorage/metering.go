package azurestorage

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// observeQueues has the metrics tell what waits in the queues that this worker
// reads, until stop is called.
func (h *TaskHub) observeQueues() (stop func()) {
	unregister, err := h.meter.Observe(h.observe)
	if err != nil {
		h.log.Warn("the metrics do not tell what waits in the queues", "error", err)
		return func() {}
	}
	return func() { _ = unregister() } // it cannot be undone twice
}

// observeTime bounds how long one look at the queues takes.
const observeTime = 10 * time.Second

// observe looks into the queues that this worker reads.
func (h *TaskHub) observe(ctx context.Context) ([]metering.QueueState, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTime)
	defer cancel()
	queues := []*store.Queue{h.workItems}
	for _, p := range h.partitions {
		if p.isListening() {
			queues = append(queues, p.queue)
		}
	}
	loads := make([]provider.QueueLoad, len(queues))
	group, ctx := errgroup.WithContext(ctx)
	for i, q := range queues {
		group.Go(func() (err error) {
			loads[i], err = q.Load(ctx, time.Now())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	states := make([]metering.QueueState, len(queues))
	for i, q := range queues {
		states[i] = metering.QueueState{Queue: q.Name, Length: loads[i].Length, Latency: loads[i].Latency}
	}
	return states, nil
}
