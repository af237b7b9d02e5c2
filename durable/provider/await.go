package provider

import "context"

// An Awaiter is a [Client] that notices when instances end, so that whoever
// waits need not ask again and again.
type Awaiter interface {
	// AwaitEnd blocks until the instance has ended, as far as this process gets
	// to know it, or until ctx ends. It returns at once if the instance is known
	// to have ended. That it returns is no more than a hint to ask.
	AwaitEnd(ctx context.Context, id string) error
}

// A Follower is a [Client] in whose process instances run. Whoever waits for one
// of those need not ask at all.
type Follower interface {
	// Follow blocks until an instance that this process runs has ended, or until
	// ctx ends, and returns the state in which it ended, without its input. It
	// returns nil if ctx ended first, and at once if this process does not run the
	// instance or does not know its state: then ask.
	Follow(ctx context.Context, id string) *InstanceState

	// Runs reports whether this process runs the instance, which has not ended as
	// far as it knows.
	Runs(id string) bool
}
