// Package partitionlog stores a task hub in one blob container, without queues and tables.
//
// # When to use it
//
// Use it on the same storage account as package azurestorage, for workloads that exceed the
// throughput of tables and queues. The format is not compatible with .NET workers or tools.
// provider.CopyHub copies a hub in either direction, including its work in flight.
//
// # How it works
//
// A hub has 1 to 64 partitions. The ID of an instance determines its partition. A partition is a
// state machine in the memory of the worker that owns it (durable/internal/partition). The owner
// appends every change to a log. The changes of many steps of many instances share one append.
//
//	hub.json                  format, number of partitions, ID
//	p00/log-…                 append blobs: groups of changes; the owner holds a lease
//	p00/base-…                block blobs: the older changes as sorted records
//	p00/mail-…                append blobs: requests of clients and messages of other partitions
//	workers/…                 append blobs: heartbeats with the owned partitions
//	workers/~bell             append blob: announces new owners and new mail
//
// The first log blob and the first mailbox blob of each partition are created with the hub. Later
// blobs replace them. So a partition without any log blob is damaged and is not opened. A partition
// without any mailbox blob is damaged, too: it works, but reports that its mail is unreadable. The
// missing blobs are not created again.
//
// Other processes read the base and the log, and then poll the end of the log with one request. So
// a client in any process sees every acknowledged change immediately. A client sends its request to
// a partition of another process as mail and finds the answer in the log. If a partition has no
// owner, the client's process acquires it for a short time.
//
// # Guarantees
//
//   - Only the lease holder can write: each append names the lease and the expected offset. A
//     frozen owner can append nothing when it wakes after its lease has expired.
//   - Answers and mail are sent only after the changes behind them are durable.
//   - A message to another partition stays in the sender's log until it is in the receiver's
//     mailbox. The receiver's log stores the number of the last received message. So each message
//     is received once, in the order of sending.
//   - Acknowledged requests of one process to an instance are delivered in order. Requests of
//     several processes have no order, with one exception: requests that a process sends after it
//     has opened the partition follow all requests that were acknowledged before.
package partitionlog
