// Package azurestorage stores a task hub in an Azure Storage account, exactly as
// .NET's DurableTask.AzureStorage does: the one can take a hub over from the
// other at any instant, and clients of both kinds can use it at the same time. A hub
// with entities is better drained before: README.md says why and how.
//
// [Open] returns a [TaskHub], which implements provider.Provider. What a hub is
// made of, how rows and messages look, and the C# source of every rule stand
// with the types that keep it: names.go, message.go, historyrow.go,
// instancerow.go, partitionrow.go.
//
// # How a message travels
//
//   - A client or an orchestration puts it into the control queue of the
//     partition that its instance's ID hashes to (hash.go, sending.go).
//   - The worker that owns the partition (partitionpass.go decides,
//     tablepartitions.go acts) receives it (controlqueue.go) and keeps it hidden
//     from others until it has taken it (heldmessages.go).
//   - The inbox gathers the messages of an instance, reads what is stored of it,
//     and decides their disposition: delivered, held back, or discarded
//     (inbox.go, package disposition).
//   - A session delivers them. Its commit sends messages, appends to the history,
//     updates the instance row and deletes what was taken, in that order
//     (session.go, checkpoint.go, pendingrow.go).
//   - Activities come from the work-item queue, which all workers share
//     (workitemqueue.go).
//   - What a process sends to itself is in its queue, too, but hidden, and is
//     handed over in memory (claim.go, direct.go). Of its clients' events that come
//     together one is (directevent.go).
//
// # What holds it together
//
//  1. One row of the history table, the sentinel, changes with every checkpoint
//     of an instance, and a checkpoint counts only if it finds it unchanged. This
//     alone keeps two workers from going on with one instance. Leases and hidden
//     messages only make it rare that they try.
//  2. A message is deleted after what it caused is stored. So each may be seen
//     twice, and is recognized by what the history has.
//  3. A message may be seen before the checkpoint that sent it counts. It is held
//     back until the history has what it belongs to.
//  4. No request is repeated by the SDK. An operation is repeated where repeating
//     does no harm; where it might, what is stored shows whether it took effect
//     (storageerror.go, historyappend.go).
//  5. An outage ends nothing. Requests are tried again, less and less often, and
//     the outage is logged once.
package azurestorage
