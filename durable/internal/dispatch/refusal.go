package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A refusedStart is the start of a child whose instance ID belongs to another running instance.
type refusedStart struct{ start *history.ExecutionStarted }

// startsAnother reports whether m starts a child other than the one that current started.
func startsAnother(current *history.ExecutionStarted, m provider.TaskMessage) bool {
	start, ok := m.Event.(*history.ExecutionStarted)
	return ok && start.Parent != nil && start.Instance.ExecutionID != current.Instance.ExecutionID && !start.IsSameChild(current)
}
