package provider

import (
	"context"
	"time"
)

// An UndecodableMessage is one that a worker has received and cannot decode. Another
// worker of the hub, of another version or engine, may be able to.
type UndecodableMessage struct {
	Queue, ID string
	Cause     string // without the message's payload
	Since     time.Time
	// SetAside means that it waits in a queue of its own until it is put back.
	SetAside bool
}

// An UndecodableKeeper is a [Client] of a hub in which there can be messages that
// nobody here can decode.
type UndecodableKeeper interface {
	// Undecodable returns those that the worker of this process has received lately or
	// has set aside, in the order of their queues and IDs, and no more than a thousand.
	// It asks nobody.
	Undecodable() []UndecodableMessage
	// RetryUndecodable puts all that were set aside, by whatever process, back into
	// their queues and returns how many there were.
	RetryUndecodable(ctx context.Context) (int, error)
}
