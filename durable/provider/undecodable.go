package provider

import (
	"context"
	"time"
)

// UndecodableMessage is a message that a worker received but cannot decode. A worker with
// another version or engine may be able to decode it.
type UndecodableMessage struct {
	Queue, ID string
	Cause     string // does not contain the message's payload
	Since     time.Time
	// SetAside means that the message was moved to a separate queue, where it stays until
	// RetryUndecodable.
	SetAside bool
}

// UndecodableReporter is a [Client] of a hub that reports and keeps undecodable messages.
type UndecodableReporter interface {
	// Undecodable returns at most 1,000 undecodable messages that the worker of this process
	// recently received or has set aside, sorted by queue and ID. It sends no request.
	Undecodable() []UndecodableMessage
	// RetryUndecodable moves all messages that any process has set aside back to their queues. It
	// returns their number.
	RetryUndecodable(ctx context.Context) (int, error)
}
