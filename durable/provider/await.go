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
