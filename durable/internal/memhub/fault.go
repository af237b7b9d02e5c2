package memhub

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Fault is a kind of failure of a hub.
type Fault int

// The faults.
const (
	// CommitFails makes Commit fail before it has any effect.
	CommitFails Fault = iota
	// CommitTears makes Commit send the checkpoint's messages and then fail, as in
	// hubs without transactions across queues and tables. If the messages are to be
	// sent last, it sends half of them.
	CommitTears
	// CommitReplyLost makes Commit succeed and return an error.
	CommitReplyLost
	// SessionLost revokes the session before Commit.
	SessionLost
	// DuplicateDelivery puts a message for an instance into its queue twice.
	DuplicateDelivery
	// DelayedDelivery delivers a message for an instance or an activity a while
	// later, and so behind others.
	DelayedDelivery
	// CompleteFails makes Complete of an activity fail before it has any effect.
	CompleteFails
	// CompleteReplyLost makes Complete of an activity send the result and return
	// an error. The activity stays in the hub.
	CompleteReplyLost
	// CompletionLost makes Complete succeed without an effect, as if the worker had
	// crashed. The activity is delivered again.
	CompletionLost
	// FetchFails makes NextOrchestration and NextActivity fail.
	FetchFails
)

// delayedBy is how much later a delayed message is delivered.
const delayedBy = 7 * time.Second

// ErrInjected is the error of an injected fault.
var ErrInjected = errors.New("injected fault")

// Times returns a condition that is true n times.
func Times(n int) func() bool {
	return func() bool {
		n--
		return n >= 0
	}
}

// Chance returns a condition that is true with probability p.
func Chance(r *rand.Rand, p float64) func() bool {
	return func() bool { return r.Float64() < p }
}
