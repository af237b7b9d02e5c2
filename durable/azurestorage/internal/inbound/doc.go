// Package inbound receives the messages of a task hub.
//
// A [Partition] reads a control queue while this worker has its lease. The [Inbox] groups the messages by
// instance, loads the instance, and decides each message's disposition. A session gets the messages with a
// [Lock] on the instance. An [ActivityQueue] receives the work items. The package sends no messages, and
// does not depend on commits.
package inbound
