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

// maxWaitingEntities is how many fetched entities may wait for a place of their own.
// More of them keep the places of orchestrations, since each takes memory.
const maxWaitingEntities = 1000

// entityName returns the name of a work item's entity.
func entityName(w *provider.OrchestrationWorkItem) string {
	id, _ := entity.ParseID(w.Instance.InstanceID)
	return id.Name
}
