package provider

import "context"

// Awaiter is a [Client] that notices the end of instances, so that callers need not poll.
type Awaiter interface {
	// AwaitEnd blocks until this process notices the end of the instance or ctx ends. It
	// returns immediately if the instance is known to have ended. The return is only a hint:
	// the caller must read the instance's state.
	AwaitEnd(ctx context.Context, id string) error
}

// Follower is a [Client] whose process also runs instances. It returns their final states
// without reading the storage.
type Follower interface {
	// Follow blocks until an instance that this process runs has ended, or ctx ends. It returns
	// the final state without its input. It returns nil if ctx ended first. It returns nil
	// immediately if this process does not run the instance or does not know its state; the
	// caller must then read the state.
	Follow(ctx context.Context, id string) *InstanceState

	// Runs reports whether this process runs the instance and has not noticed its end.
	Runs(id string) bool
}
