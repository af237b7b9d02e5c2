package monitor

import (
	"log/slog"
	"sync"
	"time"
)

// health logs once when a part of the storage account becomes unreachable and once when it responds
// again.
type health struct {
	log *slog.Logger

	mu     sync.Mutex
	downAt map[string]time.Time // start of the outage by part
}

// Failed records that a request to a part failed.
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
		h.log.Warn("storage is unreachable; retrying until it responds", "event", "GeneralWarning", "part", part, "error", err)
	}
}

// OK records that a request to a part succeeded.
func (h *health) OK(part string) {
	h.mu.Lock()
	since, down := h.downAt[part]
	delete(h.downAt, part)
	h.mu.Unlock()
	if down {
		h.log.Info("storage is reachable again", "part", part, "after", time.Since(since).Round(time.Millisecond))
	}
}
