package sim

import (
	"time"
)

// Restart is the restart of an instance of the app under a new ID. Both instances must have the same outcome.
type Restart struct {
	Of Instance
	ID string
	At time.Duration
}
