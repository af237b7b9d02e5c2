package azurestorage

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"
)

// Delete deletes the hub with all that is in it: its queues, its tables and its
// containers. It fails with [provider.ErrHubBusy] if a worker has the hub, unless
// it is forced. The service may take a minute to let the same names be used
// again.
func (h *TaskHub) Delete(ctx context.Context, force bool) error {
	if !force {
		if err := h.checkIdle(ctx); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	remove := func(what string, f func(ctx context.Context) error) {
		group.Go(func() error {
			return retry(ctx, "delete "+what, func(ctx context.Context) error { return ignore(f(ctx), http.StatusNotFound) })
		})
	}
	queues := append(h.messageQueues(), h.tracking.queue)
	for _, q := range h.messageQueues() {
		queues = append(queues, h.asideOf(q))
	}
	for _, q := range queues {
		remove("queue "+q.name, func(ctx context.Context) error {
			_, err := q.client.Delete(ctx, nil)
			return err
		})
	}
	for _, t := range []*table{h.instancesTable, h.historyTable, h.partitionsTable, h.jumpStartTable, h.tracking.table} {
		remove("table "+t.name, func(ctx context.Context) error {
			_, err := t.client.Delete(ctx, nil)
			return err
		})
	}
	for _, name := range []string{h.names.LargeMessages(), h.names.Leases(), h.names.AppLease()} {
		store := newBlobStore(h.services.blobs, h.services.blobEndpoint, name)
		remove("container "+name, func(ctx context.Context) error {
			_, err := store.client.Delete(ctx, nil)
			return err
		})
	}
	return group.Wait()
}
