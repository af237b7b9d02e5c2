package azurestorage

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// Delete deletes the hub with all that is in it: its queues, its tables and its
// containers. It fails with [provider.ErrHubBusy] if a worker has the hub, unless
// it is forced. Whoever has the app lease loses it. What cannot be deleted keeps nothing
// else from it, and the error names all of it. The service may take a minute to let the
// same names be used again.
func (h *TaskHub) Delete(ctx context.Context, force bool) error {
	if !force {
		if err := h.checkIdle(ctx); err != nil {
			return err
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex // protects failures
	var failures []error
	remove := func(what string, f func(ctx context.Context) error) {
		group.Go(func() {
			err := retry(ctx, "delete "+what, func(ctx context.Context) error { return ignore(f(ctx), http.StatusNotFound) })
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
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
			if codeOf(err) != codeLeaseIDMissing {
				return err
			}
			if err := store.breakLease(ctx); err != nil {
				return err
			}
			_, err = store.client.Delete(ctx, nil)
			return err
		})
	}
	group.Wait()
	return errors.Join(failures...)
}
