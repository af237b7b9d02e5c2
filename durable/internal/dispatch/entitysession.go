package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxEntities returns how many entities may be worked on at once.
func maxEntities(cfg Config) int {
	if n := cfg.Entities.MaxConcurrent; n > 0 {
		return n
	}
	return cfg.MaxConcurrentOrchestrators
}

// maxWaitingEntities is how many entities that were handed out may wait for room.
// Any more take the room of orchestrations: what waits is kept in memory.
const maxWaitingEntities = 1000

// entityName returns the name of the entity that was handed out.
func entityName(w *provider.OrchestrationWorkItem) string {
	id, _ := entity.ParseID(w.Instance.InstanceID)
	return id.Name
}
