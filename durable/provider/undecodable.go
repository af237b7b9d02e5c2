package provider

import (
	"context"
	"time"
)

// UndecodableMessage is a message that a worker has received and cannot decode.
// Another worker of the hub, of another version or engine, may be able to.
type UndecodableMessage struct {
	Queue, ID string
	Cause     string // without the message's payload
	Since     time.Time
	// SetAside means that the message is in a separate queue until it is put back.
	SetAside bool
}

// UndecodableKeeper is a [Client] of a hub that can have undecodable messages.
type UndecodableKeeper interface {
	// Undecodable returns the messages that the worker of this process has recently
	// received or has set aside, in the order of queues and IDs, at most a thousand. It
	// sends no request.
	Undecodable() []UndecodableMessage
	// RetryUndecodable puts all messages that were set aside, by any process, back into
	// their queues and returns their number.
	RetryUndecodable(ctx context.Context) (int, error)
}
