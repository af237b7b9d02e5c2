package sim

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// An Outcome is how an instance ends.
type Outcome struct {
	Status history.RuntimeStatus
	Sum    uint64 // if it completed
}
