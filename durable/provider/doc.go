// Package provider is the contract between the engine and a storage provider:
// how an episode's work is fetched, and what must be made durable for it.
//
// The engine fetches work items from a [Worker]. An [OrchestrationWorkItem] is an
// instance, locked for one episode: its history, and the messages that have arrived.
// The engine replays the instance and returns a [Checkpoint], a value with
// everything that the episode decided. [Session.Commit] makes it durable: all of it
// or, for every later reader, nothing. An [ActivityWorkItem] is one activity to run;
// its result is a message to the instance that scheduled it.
//
// Clients use the [Client] half: they start instances, send them messages and query
// their state.
//
// # What a provider promises
//
//  1. An instance is dispatched to one caller at a time, in the whole hub. If a
//     caller has lost its lock without noticing, as a worker that was frozen for
//     longer than its lease, its Commit fails and has no visible effect.
//  2. A message is delivered at least once. It is deleted only after a checkpoint
//     that took it, or the decision to discard it, is durable.
//  3. Messages of one sender to one instance are delivered in the order in which
//     they were sent, as far as the storage keeps it (providertest.Order). The
//     engine does not rely on it.
//  4. A completion is not delivered before the history has the event that
//     scheduled it.
//  5. Work in flight stays locked until it is committed, completed, abandoned or
//     released. The provider renews the lock.
//  6. A timer's message is not delivered before its time.
//  7. The start of a child begins a new execution if the instance ID is not known,
//     or in the place of an execution that has ended. An execution that runs gets
//     the start as a message, and the engine refuses it: the checkpoint has a
//     message to the parent, and may have no events. A start that is delivered
//     twice begins one execution.
//
// [Progress.Disposition] is the rule of 4 and 7, and [InstanceState.Apply] the rule
// of an instance's status.
//
// # What a provider may offer besides
//
// Optional interfaces are found by type assertion: [Purger], [Rewinder],
// [Placer] and [Awaiter] are for clients, [Clock] is a hub's own time, [LoadReporter],
// [UsageReporter] and [Primary] are for operators of workers, [Sole] lets the engine do less,
// [Exact] promises more, and with [Portable] a hub can be copied to another provider while
// instances are running.
//
// providertest.Exercise tests all of it.
package provider
