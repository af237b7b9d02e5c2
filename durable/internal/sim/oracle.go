package sim

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Outcome is the final state of an instance.
type Outcome struct {
	Status history.RuntimeStatus
	Sum    uint64 // the output of a completed instance
}
