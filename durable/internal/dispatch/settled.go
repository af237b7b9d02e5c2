package dispatch

import (
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// maxSettled is the number of entities whose settled execution a worker remembers. For other
// entities it may send the last outbox again.
const maxSettled = 10_000

// settled remembers the last settled execution of each entity. An execution is settled when its outbox was
// sent and the messages that it consumed were deleted. The zero value is ready to use.
type settled struct {
	mu   sync.Mutex // protects the following
	last map[string]string
}

// add records that an execution is settled.
func (o *settled) add(i history.OrchestrationInstance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = make(map[string]string)
	}
	if _, known := o.last[i.InstanceID]; !known && len(o.last) >= maxSettled {
		for id := range o.last { // any entity: this causes duplicates, which receivers discard
			delete(o.last, id)
			break
		}
	}
	o.last[i.InstanceID] = i.ExecutionID
}

// has reports whether an execution is known to be settled.
func (o *settled) has(instanceID, executionID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.last[instanceID]
	return ok && last == executionID
}
