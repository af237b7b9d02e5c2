// Package partitionlog stores a task hub in one blob container: no queue, no table.
//
// # When to choose it
//
// It is for work that is too much for the tables and queues of package azurestorage, on
// the same storage account. What is given up is .NET's layout: neither .NET workers nor
// its tools can read the hub. provider.CopyHub copies hubs in and out, with all that is
// under way.
//
// # How it works
//
// A hub has 1 to 64 partitions, and each instance belongs to one of them by its ID. A
// partition is a state machine in the memory of the worker that owns it
// (durable/internal/partition). What changes it goes into a log, and the changes of many
// steps of many instances share one append:
//
//	hub.json                  format, number of partitions, ID
//	p00/log-…                 append blobs: the changes, in groups. The owner has a lease
//	p00/base-…                block blobs: what the log had when it got long, sorted
//	p00/mail-…                append blobs: what others ask of the partition
//	workers/…                 append blobs: who works, and on which partitions
//	workers/~bell             an append blob: partitions have changed hands, or have mail
//
// The first log and mailbox blob of each partition are created with the hub. So a missing one is
// damage: the partition is not opened, and its blobs are not created again.
//
// Everybody else reads the log itself: base, groups, and then the log's tail with one
// request for each look. So a client in any process sees all that was acknowledged, at
// once. A client's request to a partition of another process is mail; its answer is in
// the log. If nobody owns the partition, the client's process takes it for a moment.
//
// # What is promised
//
//   - The lease decides who writes: each append names it, and the position that it
//     expects. An owner that was frozen can append nothing when it wakes.
//   - Nothing leaves before it is durable: no answer, no mail.
//   - Messages between partitions are in the sender's log until the receiver's mailbox has
//     them, and the receiver's log has the number of the last that it took: each is taken
//     once, in the order in which it was sent.
//   - Acknowledged requests of one process to an instance are delivered in order. Requests
//     through several processes have no order, with one exception: what a process sends
//     after it has opened the partition comes after all that was acknowledged before.
package partitionlog
