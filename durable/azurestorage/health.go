package azurestorage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// health logs when a part of the storage account stops answering and when it
// answers again, once each.
type health struct {
	log *slog.Logger

	mu     sync.Mutex
	downAt map[string]time.Time // part → since when
}

// Failed notes that a request to a part failed.
func (h *health) Failed(part string, err error) {
	h.mu.Lock()
	_, down := h.downAt[part]
	if !down {
		if h.downAt == nil {
			h.downAt = map[string]time.Time{}
		}
		h.downAt[part] = time.Now()
	}
	h.mu.Unlock()
	if !down {
		h.log.Warn("storage is out of reach, retrying until it is back", "event", "GeneralWarning", "part", part, "error", err)
	}
}

// OK notes that a request to a part succeeded.
func (h *health) OK(part string) {
	h.mu.Lock()
	since, down := h.downAt[part]
	delete(h.downAt, part)
	h.mu.Unlock()
	if down {
		h.log.Info("storage is back", "part", part, "after", time.Since(since).Round(time.Millisecond))
	}
}

// noInstance is asked for to see whether the tables answer. No instance can have it.
const noInstance = "@@check"

// Check implements [provider.Checker]. It makes a request to a table and one to a queue
// of the hub, for which both must exist.
func (h *TaskHub) Check(ctx context.Context) error {
	if err := h.ensureCreated(ctx); err != nil {
		return err
	}
	ctx = store.Urgent(ctx)
	if _, err := h.instances.Rows.Read(ctx, noInstance); err != nil {
		return err
	}
	if _, err := h.workItems.Client.GetProperties(ctx, nil); err != nil {
		return fmt.Errorf("look at queue %s: %w", h.workItems.Name, err)
	}
	return h.lookAside(ctx)
}

// IsBusy implements [provider.Checker].
func (h *TaskHub) IsBusy() bool {
	return h.services.QueuePace.IsBusy() || h.services.TablePace.IsBusy() || h.services.BlobPace.IsBusy()
}
