package embedded

import "github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"

// inUse counts what is given back once a worker has nothing to do. When it has stopped,
// what it had in hand stays noted for who opens the hub next.
func (h *Hub) inUse() inuse.Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := inuse.Counts{"sessions": len(h.sessions), "locks of activities": len(h.locks)}
	if h.running {
		all["activities that are not done"], all["instances with messages"] = len(h.delivered), len(h.instances)
	}
	for _, waiting := range h.awaited {
		all["who await an end"] += len(waiting)
	}
	return all
}
