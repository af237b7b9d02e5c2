package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// ErrNoHub is the error of a hub that does not exist.
var ErrNoHub = errors.New("there is no such task hub")

// Delete deletes the hub with all that is in it. It fails with [provider.ErrHubBusy] if a
// process has one of its partitions, unless it is forced, and with [ErrNoHub] if there is
// none. The service may take half a minute to let the same name be used again.
func (h *Hub) Delete(ctx context.Context, force bool) error {
	if !force {
		blobs, _, err := h.leases.ListInfo(ctx, "p")
		if store.IsContainerMissing(err) {
			err = ErrNoHub
		}
		if err != nil {
			return fmt.Errorf("delete task hub %s: %w", h.cfg.TaskHub, err)
		}
		for _, b := range blobs {
			if partition, _, log := strings.Cut(b.Name, "/log-"); log && b.Leased {
				return fmt.Errorf("a process has partition %s of task hub %s: %w", partition, h.cfg.TaskHub, provider.ErrHubBusy)
			}
		}
	}
	err := h.blobs.Delete(ctx)
	if store.StatusOf(err) == http.StatusNotFound {
		err = ErrNoHub
	}
	if err != nil {
		return fmt.Errorf("delete task hub %s: %w", h.cfg.TaskHub, err)
	}
	return nil
}
