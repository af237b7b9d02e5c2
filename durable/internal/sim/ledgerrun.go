package sim

import (
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// isEntity reports whether an instance is an entity, which does not end.
func isEntity(state *durable.InstanceState) bool {
	return history.IsEntity(state.Instance.InstanceID)
}
