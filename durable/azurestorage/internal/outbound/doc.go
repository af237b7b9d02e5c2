// Package outbound sends messages to the queues of a task hub.
//
// If this process serves the queue, a message is delivered in memory: hidden in its queue (a claim), or
// without being enqueued (a direct delivery). The package knows the queues by two interfaces, [Destination]
// and [ControlQueue]. It does not depend on the receipt of messages, on leases or on sessions.
package outbound
