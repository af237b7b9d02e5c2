// Package entity implements durable entities with the semantics of DurableTask.Core. It turns
// events into operations, and the results of operations into a new state and messages. It uses
// no clock, no storage and no goroutines.
//
// An entity is an instance with the ID "@name@key". It continues as new with every batch of
// messages; the input of its start is the encoded [State]. Orchestrations, clients and other
// entities send it [Request] and [Release] messages as external events. It answers with
// [Response] messages.
//
// The package reads and writes the format of DurableTask.Core's entities. It also reads the
// format of the Functions extension's older scheduler.
//
// # Model
//
// A [Batch] takes a State and messages, and returns the next State and messages:
//
//	messages ──► Sorter ──► memory ──► queue ──► operations ──► State
//	             orders     removes    lock       user's code    │
//	             by sender  dupli-     holder                    ▼
//	                        cates      first      outbox: sent once the State is stored
//
// The dispatcher commits the State in a checkpoint, then sends the outbox, then deletes the
// messages that the batch took. After that the batch is settled ([State.Settle]). If a worker
// dies earlier, its successor does not know whether the batch is settled. Redelivered messages
// show that it is not.
//
// The following holds at each checkpoint:
//
//  1. Once: a request, a release or a continuation has at most one effect on consecutive
//     States, even if it is sent or delivered several times.
//  2. In order: requests of one execution of a sender take effect in the order in which its
//     committed checkpoints sent them. A request older than the reorder window is an exception.
//  3. Nothing lost: the outbox of a stored State is sent until the batch is settled. It is the
//     same each time, so receivers recognize duplicates by their IDs.
//
// # Deduplication
//
// The memory of a State holds the IDs of the messages that took effect. A message is looked up
// and added once, when it leaves the Sorter. Its ID is held as long as the message may arrive
// again. Each reason has a limit of its own: a burst for one reason does not evict IDs that are
// held for another.
//
//	reason      why the message may arrive again          how long its ID is held
//	redelivery  the batch that took it is not settled     until it is settled, or an hour
//	rerun       its sender's checkpoint was lost, and     15 minutes, at most 2,048
//	            the sender runs again
//	retry       a client's library or the network sends   the last 128
//	            a client's signal again
//
// Requests that the Sorter orders are not held for reruns, in which they get new labels. The
// Sorter itself holds their IDs, for each execution of a sender (run.recent). An episode may
// send thousands of requests, which must be recognized as long as the episode may run again. A
// request of the next episode ends that time, and only its label shows that it belongs to the
// next episode. A limit by time or number would make the states of busy entities large, or
// drop IDs too early.
//
// The State does not record whether its batch is settled, because this is known only after the
// State is stored. The dispatcher remembers it, and settles the State before the next batch.
// That batch then neither holds the last one as unsettled nor sends its outbox again.
//
// # Size
//
// Each batch stores the whole State. If an entity has many senders, the size of the State for
// each sender determines the cost of a call:
//
//  1. The Sorter has an entry for each sender. It needs the full entry only while requests of
//     the sender wait or its last batch is not settled. If there are many entries, it moves the
//     others to its [past], which holds only marks of their IDs and last labels.
//  2. The past is limited by time, as entries are, and by number. Requests do not wait for labels
//     that were dropped because of the number, nor for labels older than the window.
//  3. A hub may deliver the messages of instances in order and exactly once ([Settings].ExactlyOnce).
//     The Sorter then has entries for a few senders only. The memory holds the signals of clients,
//     and releases of locks whose request arrives later by way of another entity.
//  4. With the window disabled, no new senders are tracked. Requests of existing senders are
//     sorted until the clock expires their entries. Labels, which usually expire entries, require
//     a window.
package entity
