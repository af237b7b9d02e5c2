package azurestorage

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// Delete deletes the hub with all that is in it: its queues, its tables and its
// containers. It fails with [provider.ErrHubBusy] if a worker has the hub, unless
// it is forced. Whoever has the app lease loses it. What cannot be deleted keeps nothing
// else from it, and the error names all of it. The service may take a minute to let the
// same names be used again.
func (h *TaskHub) Delete(ctx context.Context, force bool) error {
	if !force {
		if err := h.resources.checkIdle(ctx); err != nil {
			return err
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex // protects failures
	var failures []error
	remove := func(what string, f func(ctx context.Context) error) {
		group.Go(func() {
			err := store.Retry(ctx, "delete "+what, func(ctx context.Context) error { return store.Ignore(f(ctx), http.StatusNotFound) })
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
		})
	}
	queues := append(h.undecodable.messageQueues(), h.tracking.queue.Queue)
	for _, q := range h.undecodable.messageQueues() {
		queues = append(queues, h.undecodable.asideOf(q))
	}
	for _, q := range queues {
		remove("queue "+q.Name, func(ctx context.Context) error {
			_, err := q.Client.Delete(ctx, nil)
			return err
		})
	}
	for _, t := range []*store.Table{h.instances.Rows.Table, h.instances.Histories.Table, h.partitionsTable, h.starts.records.Table, h.tracking.queue.Table} {
		remove("table "+t.Name, func(ctx context.Context) error {
			_, err := t.Client.Delete(ctx, nil)
			return err
		})
	}
	for _, name := range []string{h.names.LargeMessages(), h.names.Leases(), h.names.AppLease()} {
		c := store.NewContainer(h.services.Blobs, h.services.BlobEndpoint, name)
		remove("container "+name, func(ctx context.Context) error {
			_, err := c.Client.Delete(ctx, nil)
			if store.CodeOf(err) != store.CodeLeaseIDMissing {
				return err
			}
			if err := c.BreakLease(ctx); err != nil {
				return err
			}
			_, err = c.Client.Delete(ctx, nil)
			return err
		})
	}
	group.Wait()
	return errors.Join(failures...)
}
