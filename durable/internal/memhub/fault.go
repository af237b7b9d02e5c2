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
	// CommitFails makes Commit return an error without any effect.
	CommitFails Fault = iota
	// CommitTears makes Commit enqueue the checkpoint's messages and then fail, like a hub
	// without transactions across queues and tables. If SendLast is set, Commit writes the
	// history, enqueues half of the messages and fails.
	CommitTears
	// CommitReplyLost makes Commit take effect and return an error.
	CommitReplyLost
	// SessionLost revokes the session before Commit.
	SessionLost
	// DuplicateDelivery enqueues a message for an instance twice.
	DuplicateDelivery
	// DelayedDelivery delays a message for an instance or an activity by 7 s, behind later
	// ones.
	DelayedDelivery
	// CompleteFails makes Complete of an activity return an error without any effect.
	CompleteFails
	// CompleteReplyLost makes Complete of an activity enqueue the result and return an error.
	// The activity stays in the hub.
	CompleteReplyLost
	// CompletionLost makes Complete succeed without enqueueing the result. The activity is
	// redelivered, as after a crash of the worker.
	CompletionLost
	// FetchFails makes NextOrchestration and NextActivity return an error.
	FetchFails
)

// deliveryDelay is the delay of DelayedDelivery.
const deliveryDelay = 7 * time.Second

// ErrInjected is returned by calls that a fault makes fail.
var ErrInjected = errors.New("injected fault")

// Times returns a function that returns true for its first n calls.
func Times(n int) func() bool {
	return func() bool {
		n--
		return n >= 0
	}
}

// Chance returns a function that returns true with probability p.
func Chance(r *rand.Rand, p float64) func() bool {
	return func() bool { return r.Float64() < p }
}
