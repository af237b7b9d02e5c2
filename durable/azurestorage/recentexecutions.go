package azurestorage

import (
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// recentExecutions is a set that keeps at least the last recentMax executions.
type recentExecutions struct {
	mu            sync.Mutex
	latest, older map[history.OrchestrationInstance]bool
}

// recentMax is the maximum size of each map.
const recentMax = 10_000

func (r *recentExecutions) has(execution history.OrchestrationInstance) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest[execution] || r.older[execution]
}

func (r *recentExecutions) add(execution history.OrchestrationInstance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest == nil || len(r.latest) == recentMax {
		r.latest, r.older = map[history.OrchestrationInstance]bool{}, r.latest
	}
	r.latest[execution] = true
}
