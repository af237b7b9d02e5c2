// Package provider is the contract between the engine, which runs orchestrations, and a storage
// provider, which stores a task hub.
//
// The engine fetches work items from a [Worker]. An [OrchestrationWorkItem] is an instance with
// its history and its new messages. It is locked for one episode, a run of the orchestrator
// until it waits again. The engine replays the instance and returns a [Checkpoint], a value
// with everything that the episode decided. [Session.Commit] makes the checkpoint durable
// atomically. An [ActivityWorkItem] is one activity to run. Its result is a message to the
// instance that scheduled it.
//
// Clients start instances, send messages to them and query their state with a [Client].
//
// # Required guarantees
//
//  1. An instance is dispatched to one caller at a time in the whole hub. A caller may lose
//     its lock without noticing, for example because its process was frozen for longer than
//     the lease. Its Commit then fails and has no visible effect.
//  2. A message is delivered at least once. The provider deletes it only after the checkpoint
//     that consumes it, or the decision to discard it, is durable.
//  3. Messages of one sender to one instance are delivered in the order in which they were
//     sent, as far as the storage preserves it (providertest.Order). The engine does not rely
//     on the order.
//  4. A completion is delivered only after the history contains the event that scheduled the
//     work.
//  5. Work in flight stays locked until it is committed, completed, abandoned or released. The
//     provider renews the lock.
//  6. A timer's message is delivered at its due time or later.
//  7. The start of a child begins a new execution if the instance ID is unknown or its
//     execution has ended. A running execution receives the start as a message instead, and
//     the engine refuses it. The checkpoint then contains a message to the parent and may have
//     no events. A start that is delivered twice begins one execution.
//
// [Progress.Disposition] implements guarantees 4 and 7. [InstanceState.Apply] derives an
// instance's status from its events.
//
// # Optional interfaces
//
// The engine, clients and operators find optional interfaces by type assertion. [Purger],
// [Rewinder], [Placer], [Tracker], [Awaiter] and [Follower] are for clients. [Clock] is a hub's
// own time. [Checker], [LoadReporter], [UsageReporter], [PartitionReporter],
// [UndecodableKeeper] and [Primary] are for operators. [Sole], [Exact] and [Settler] let the
// engine skip work. [Portable] copies a hub with running instances to another provider.
//
// providertest.Exercise tests the guarantees. It also tests [Purger], [Rewinder], [Follower],
// [Checker], [Exact] and [Portable] if the provider implements them.
package provider
