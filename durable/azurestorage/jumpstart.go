package azurestorage

import (
	"fmt"
	"time"
)

// JumpStart has clients record each start in a table of its own before they
// send it, as the Durable Task Framework did on Service Bus. A worker looks at
// the records of its partitions, and sends a start again that was recorded but
// has not arrived: the client died in between, or the storage refused the
// message. It costs three storage operations a start, and a look at the table
// for each partition every Interval.
type JumpStart struct {
	// Enabled turns it on, for this client and this worker.
	Enabled bool
	// Timeout is how long a start may take to arrive before it is sent again.
	// Default 10 minutes; 1 s to a day.
	Timeout time.Duration
	// Interval is how often a worker looks. Default 5 s; 10 ms to an hour.
	Interval time.Duration
}

// The defaults of [JumpStart].
const (
	DefaultJumpStartTimeout  = 10 * time.Minute
	DefaultJumpStartInterval = 5 * time.Second
)

func (j JumpStart) withDefaults() JumpStart {
	set(&j.Timeout, DefaultJumpStartTimeout)
	set(&j.Interval, DefaultJumpStartInterval)
	return j
}

func (j JumpStart) validate() error {
	switch {
	case j.Timeout < time.Second || j.Timeout > 24*time.Hour:
		return fmt.Errorf("JumpStart.Timeout is %v; want 1s to 24h0m0s", j.Timeout)
	case j.Interval < 10*time.Millisecond || j.Interval > time.Hour:
		return fmt.Errorf("JumpStart.Interval is %v; want 10ms to 1h0m0s", j.Interval)
	}
	return nil
}
