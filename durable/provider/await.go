package provider

import "context"

// Awaiter is a [Client] that notices when instances end, so that waiting for one
// does not need polling.
type Awaiter interface {
	// AwaitEnd blocks until this process has noticed that the instance has ended, or
	// until ctx ends. It returns at once if the instance is known to have ended. Its
	// return is a hint: read the instance's state.
	AwaitEnd(ctx context.Context, id string) error
}

// Follower is a [Client] in whose process instances run. Their ends need no
// reading.
type Follower interface {
	// Follow blocks until an instance that this process runs has ended, or until ctx
	// ends, and returns the state in which it ended, without its input. It returns
	// nil if ctx ended first, and at once if this process does not run the instance or
	// does not know its state: then read the state.
	Follow(ctx context.Context, id string) *InstanceState

	// Runs reports whether this process runs the instance, and has not noticed its
	// end.
	Runs(id string) bool
}
