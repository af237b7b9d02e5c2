package taskhub

import (
	"log/slog"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxUnreadable bounds how many unreadable instances are logged and remembered.
const maxUnreadable = 1000

// An UnreadableLog logs each unreadable instance once.
type UnreadableLog struct {
	mu    sync.Mutex // protects known
	known map[string]bool
}

// Add logs those of found that were not logged before.
func (u *UnreadableLog) Add(log *slog.Logger, found []provider.UnreadableInstance) {
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
		log.Error("lists and purges leave out an instance whose stored record cannot be read; repair it, or delete it with a storage tool",
			"event", "InstanceUnreadable", "instanceId", i.InstanceID, "error", i.Cause)
	}
}
