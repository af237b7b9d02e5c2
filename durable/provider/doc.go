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
// # Required interfaces
//
//   - [Provider] is a hub: a [Client] and a [Worker].
//   - [Session] is the lock of an [OrchestrationWorkItem].
//   - [ActivityLock] is the lock of an [ActivityWorkItem].
//
// A hub that implements these runs orchestrations and entities.
//
// # Optional interfaces
//
// Callers find optional interfaces by type assertion. A hub without an interface works like
// this:
//
// Operations of clients, on a [Client]. Without the interface the operation fails with
// [ErrNotSupported]:
//
//   - [Purger]: durable.Client.Purge, PurgeMany and CleanEntities.
//   - [Rewinder]: durable.Client.Rewind.
//   - [Tracker]: durable.Client.Tracking.
//
// Faster or more exact answers, on a [Client]:
//
//   - [Awaiter]: Instance.Wait returns when the hub notices the end. Without it, Wait polls.
//   - [Follower]: Instance.Wait gets the output without a request, and a client sends messages to
//     an instance of this process without a read of its state. Without it, both read the state.
//   - [QueuePositioner]: durable.Client.Why reports the queue position of an instance that has not
//     started. Without it, the reason has no position.
//   - [Clock]: messages of clients have timestamps of the hub's clock. Without it, they have
//     time.Now.
//
// Assumptions of the engine:
//
//   - [ExactlyOnce], on a [Worker]: entities store almost nothing about their callers. Without it,
//     they remember received messages. A checkpoint with results of steps and messages takes one
//     commit; without it, two.
//   - [SingleWorker], on a [Worker]: work for an unregistered function fails immediately. Without
//     it, the work waits for another worker.
//   - [Holder], on a [Session]: a step starts only while the session holds its instance. Running
//     steps end in time if the worker hands the instance over. Without it, the engine assumes that
//     the session holds its instance until the release.
//   - [Settler], on a [Session]: the engine forgets committed messages when they can no longer be
//     redelivered. Without it, the engine assumes no redelivery and forgets them at once.
//
// Health and operation, on a [Client]. Without the interface the handler omits the figures or
// refuses the command:
//
//   - [Checker]: the health of the hub, and 503 while the storage is overloaded.
//   - [LoadReporter]: the load, for scaling. A [Worker] that is a [StepObserver] adds its steps.
//   - [UsageReporter]: counts of storage requests.
//   - [PartitionReporter]: partitions that this process cannot serve.
//   - [UndecodableReporter]: undecodable messages, and their return to the queues.
//   - [Primary]: the command that makes this app the primary app.
//
// Copies, on a [Provider]:
//
//   - [Portable]: copies a hub with running instances to and from another provider, item by item
//     through a [HubWriter].
//
// # Tests
//
// providertest.Exercise tests the guarantees. It also tests [Purger], [Rewinder], [Follower],
// [Checker], [ExactlyOnce] and [Portable] if the provider implements them.
package provider
