// Package provider is the contract between the engine and a storage provider:
// how an episode's work is fetched, and what must be made durable for it.
//
// The engine asks a [Worker] for work items. An [OrchestrationWorkItem] is an
// instance, locked for one episode: the history it has and the messages that
// arrived. The engine replays it and answers with a [Checkpoint], a value that
// holds everything the episode decided; [Session.Commit] makes it durable, all
// of it or, as far as anybody can see after a reload, nothing. An
// [ActivityWorkItem] is one activity to run; its result is a message to the
// instance that scheduled it.
//
// Clients use the [Client] half: they start instances, send them messages and
// read what is known of them.
//
// # What a provider promises
//
//  1. An instance is handed out to one caller at a time, in the whole hub. Where
//     that cannot be kept for certain (a worker frozen past its lease), Commit
//     of the one who lost it fails and changes nothing that others can see.
//  2. A message is handed out at least once, and is gone only when a checkpoint
//     that took it, or a decision that nobody wants it, is durable.
//  3. Messages for one instance are handed out in the order in which they were
//     sent by one sender, as far as the storage keeps it (providertest.Order); the
//     engine does not rely on it.
//  4. A completion is not handed out before the history has the event that
//     scheduled it.
//  5. What was handed out stays locked until it is committed, completed,
//     abandoned or released; the provider renews the lock by itself.
//  6. A timer's message is not handed out before its time.
//  7. The start of a child (an ExecutionStarted with a Parent) whose instance ID
//     is not known, or is that of an instance that has ended, begins a new
//     execution, in the place of the old one. If the instance goes on with
//     another execution, the start is handed out as one more message of that
//     one: the engine refuses it, with a message to the parent in a checkpoint
//     that may have no events, and the instance is not touched. If another
//     execution is about to start, the start waits until that has begun. A start
//     that is handed out twice begins nothing a second time; whether two starts
//     are of the same child is told by their Parent, which is the same though
//     the child has continued as new.
//
// # What a provider may offer besides
//
// Interfaces that stand beside [Provider] are found by type assertion: [Purger],
// [Rewinder] and [Awaiter] do more for clients, [Clock] gives the hub a time of
// its own, [LoadReporter] and [Primary] are for who runs workers, and [Portable]
// lets a hub be copied to another provider with all that is under way.
//
// providertest.Exercise checks all of it. A provider is done when that passes.
package provider
