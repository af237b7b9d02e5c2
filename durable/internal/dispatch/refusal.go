package dispatch

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A refusedStart is the start of a child whose instance ID another running instance
// has.
type refusedStart struct{ start *history.ExecutionStarted }

// meetsAnother reports whether m is the start of another child than the one that
// current began.
func meetsAnother(current *history.ExecutionStarted, m provider.TaskMessage) bool {
	start, ok := m.Event.(*history.ExecutionStarted)
	return ok && start.Parent != nil && start.Instance.ExecutionID != current.Instance.ExecutionID && !start.IsSameChild(current)
}
