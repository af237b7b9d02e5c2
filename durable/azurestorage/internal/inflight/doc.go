// Package inflight holds the messages in flight in this process: received from a queue, or sent to a queue
// that this process serves.
//
// No other worker receives such a message. It is hidden in its queue, where [Messages] renews its visibility
// timeout, or it is in no queue. A [Delivery] ends when the effects of the message are stored, or when the
// message is released. Until then its [Safety] keeps the message, so that a crash does not lose it. The
// package does not depend on partitions, sessions and senders.
package inflight
