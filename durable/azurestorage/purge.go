package azurestorage

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var _ provider.Purger = (*TaskHub)(nil)

// Purge implements [provider.Purger]. What was seen is compared with the instance row,
// which is read after the history: what began in between is not purged in the place of
// what was before. The row goes last: whoever was cut off finds it, and does the rest by
// purging again. So that it can be read, it names no blobs any more when they go. Rows
// are deleted as they were read, the sentinel first, and no blobs that were not there
// before that: if somebody starts the ID anew meanwhile, that one stays, and the error
// says so
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// DeleteAllDataForOrchestrationInstance).
//
// Messages that are still on their way to the instance are discarded when they
// arrive, but those to an entity, which begins anew with them.
func (h *TaskHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	err := wire.CheckID(id)
	if err == nil {
		err = h.resources.ensureCreated(ctx)
	}
	if err == nil {
		err = h.instances.Purge(ctx, id, seen, h.starts.dropRecords)
	}
	if err != nil {
		return fmt.Errorf("purge instance %q: %w", id, err)
	}
	return nil
}
