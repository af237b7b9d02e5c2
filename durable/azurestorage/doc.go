// Package azurestorage stores a task hub in an Azure Storage account, in the format of .NET's
// DurableTask.AzureStorage. Workers of either engine can take the hub over from the other, and
// clients of both can use it at the same time. Drain a hub that contains entities before you switch
// engines; DESIGN.md describes how.
//
// [Open] returns a [TaskHub], which implements provider.Provider. Package internal/wire defines the
// names of the hub's resources and the format of its rows and messages. Each type names the C# file
// and member that its rules come from.
//
// # How a message travels
//
//   - A client or an orchestration enqueues it in the control queue of the partition that the
//     instance's ID hashes to (wire/hash.go, package outbound).
//   - The worker that owns the partition (package leases) receives it (inbound/controlqueue.go) and keeps it
//     hidden until a checkpoint has consumed it (package inflight).
//   - The inbox groups messages by instance, reads the instance's history, and decides each
//     message's disposition: deliver, hold back, or discard (inbound/inbox.go, package disposition).
//   - A session delivers the messages to the engine. Its commit sends messages, appends to the
//     history, updates the instance row and deletes the consumed messages, in that order
//     (session.go, checkpoint.go, pendingrow.go).
//   - Activities come from the work-item queue, which all workers share (inbound/workitemqueue.go).
//   - A message from a process to itself is enqueued hidden and delivered in memory (package
//     outbound). Client events that arrive together need only one queue message (outbound/directevent.go).
//
// # What keeps it consistent
//
//  1. Every checkpoint of an instance updates one row of the history table, the sentinel, on the
//     condition that it is unchanged. This alone prevents two workers from advancing the same
//     instance. Leases and hidden messages only make the conflict rare.
//  2. A message is deleted after its effects are stored. It can therefore be delivered twice; the
//     history identifies the duplicate.
//  3. A message can be received before its sender's checkpoint is committed. It is held back until
//     the history explains it.
//  4. The SDK repeats no request. This package repeats an operation if that is harmless. Otherwise
//     it reads from storage whether the first attempt took effect (store/storageerror.go,
//     instances/historyappend.go).
//  5. An outage stops nothing permanently. Requests are retried with a growing delay, and the
//     outage is logged once.
package azurestorage
