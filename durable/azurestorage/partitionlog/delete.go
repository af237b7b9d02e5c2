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

// ErrNoHub is returned if the hub does not exist.
var ErrNoHub = errors.New("the task hub does not exist")

// Delete deletes the hub with all its data. Unless force is true, it fails with
// [provider.ErrHubBusy] if a process owns a partition. It fails with [ErrNoHub] if the hub does not
// exist. The service may refuse the same container name for half a minute.
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
				return fmt.Errorf("a process owns partition %s of task hub %s: %w", partition, h.cfg.TaskHub, provider.ErrHubBusy)
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
