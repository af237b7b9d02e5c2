package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxEntities returns the maximum number of entities that run at the same time.
func maxEntities(cfg Config) int {
	if n := cfg.Entities.MaxConcurrent; n > 0 {
		return n
	}
	return cfg.MaxConcurrentOrchestrators
}

// maxWaitingEntities is the maximum number of fetched entities that wait for an entity slot.
// Further ones keep their orchestration slot, which limits the memory that they use.
const maxWaitingEntities = 1000

// entityName returns the name of a work item's entity.
func entityName(w *provider.OrchestrationWorkItem) string {
	id, _ := entity.ParseID(w.Instance.InstanceID)
	return id.Name
}
