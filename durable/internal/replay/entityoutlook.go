package replay

import (
	"cmp"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// An EntityCall is a call of an entity, or a request for locks, that is not
// answered yet.
type EntityCall struct {
	*Future
	Target entity.ID
	Locks  []entity.ID // nil if it is a call
}

// EntityCalls returns the calls of entities and requests for locks that the
// orchestrator has made and that are not answered, in the order of their numbers.
func (x *Execution) EntityCalls() []EntityCall {
	if x.complete != nil || x.over {
		return nil
	}
	var all []EntityCall
	for _, r := range x.entities.calls {
		if r != nil && r.future != nil {
			all = append(all, EntityCall{r.future, r.target, r.message.LockSet})
		}
	}
	slices.SortFunc(all, func(a, b EntityCall) int { return cmp.Compare(a.id, b.id) })
	return all
}
