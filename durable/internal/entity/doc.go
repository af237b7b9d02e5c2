// Package entity is what a durable entity is between its messages and its
// stored state, as DurableTask.Core has it: events in, operations to run,
// events out. It knows no clock, no storage and no goroutine.
//
// An entity is an instance whose ID is "@name@key". It is stored as an
// instance that continues as new with every batch of messages; the input of its
// start is a [State]. What others send it are [Request]s and releases of locks
// in external events; what it answers is a [Response].
//
// Two dialects are read: that of DurableTask.Core's entities, which is written,
// too, and that of the Functions extension's older scheduler.
//
// # Model
//
// One batch takes a State and messages to the next State and messages:
//
//	messages ──► Sorter ──► memory ──► queue ──► operations ──► State
//	             in order   once       lock       user's code    │
//	             of each               holder                    ▼
//	             sender                first      outbox: sent once the State is stored
//
// The dispatcher stores the State with a checkpoint, then sends the outbox, then
// deletes the messages that the batch took. When all of that is known to be done the
// batch is settled ([State.Settle]). A worker that dies earlier leaves a State whose
// batch may or may not be settled; its successor finds out from what comes again.
//
// These hold at each checkpoint:
//
//  1. Once: a request, a release or a continuation has at most one effect on States
//     that follow one another, however often it is sent and delivered.
//  2. In order: requests of one execution of a sender take effect in the order in
//     which its checkpoints that count sent them, unless one is older than the
//     reorder window.
//  3. Nothing lost: what a stored State has in its outbox is sent until the batch is
//     settled, and is the same each time, so that receivers know it by its ID.
//
// # Deduplication
//
// The same request can come again for four reasons. Each is known in its own way, and
// for as long as that reason lasts:
//
//   - The batch that took it was not settled: memory.taken and memory.doubtful, until
//     it is settled, or for an hour.
//   - Its sender's checkpoint was lost and the sender ran again, with other labels:
//     run.recent of the sender's execution and source.before, as long as the Sorter
//     knows the sender; memory.repeated for 15 minutes, for what no Sorter knows: locks,
//     releases, requests for later, and senders that the Sorter has forgotten.
//   - A client's library sent it twice: memory.signals, the last 128.
//   - The network delivered it twice: by any of the above.
//
// All of these are in the State. What the dispatcher remembers besides, of which
// entities the last batch is settled, only spares sending the outbox again.
package entity
