package sim

import (
	"time"
)

// A Restart is of an instance of the app, as another instance, which comes to the same.
type Restart struct {
	Of Instance
	ID string
	At time.Duration
}
