package handler

import (
	"log/slog"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxUnreadable bounds how many unreadable instances are logged and remembered.
const maxUnreadable = 1000

// unreadableInstances remembers the unreadable instances that the log has, so that
// each is there once.
type unreadableInstances struct {
	mu    sync.Mutex // protects known
	known map[string]bool
}

func (u *unreadableInstances) tell(log *slog.Logger, found []provider.UnreadableInstance) {
	if len(found) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil {
		u.known = make(map[string]bool)
	}
	for _, i := range found {
		if u.known[i.InstanceID] || len(u.known) == maxUnreadable {
			continue
		}
		u.known[i.InstanceID] = true
		log.Error("an instance is left out of lists and purges: what is stored of it cannot be read; repair it, or delete it with the tools of the storage",
			"event", "InstanceUnreadable", "instanceId", i.InstanceID, "error", i.Cause)
	}
}
