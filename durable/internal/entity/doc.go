// Package entity implements durable entities as DurableTask.Core has them: from
// events to operations to run, and from their results to events. It has no clock, no
// storage and no goroutines.
//
// An entity is an instance whose ID is "@name@key". It is stored as an
// instance that continues as new with every batch of messages; the input of its
// start is a [State]. Others send it [Request]s and releases of locks in external
// events. It answers with [Response]s.
//
// The package reads two dialects: that of DurableTask.Core's entities, which it
// writes, too, and that of the Functions extension's older scheduler.
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
// batch may or may not be settled; its successor finds out from the messages that are
// redelivered.
//
// These hold at each checkpoint:
//
//  1. Once: a request, a release or a continuation has at most one effect on States
//     that follow one another, however often it is sent and delivered.
//  2. In order: requests of one execution of a sender take effect in the order in
//     which its checkpoints that count sent them, unless one is older than the
//     reorder window.
//  3. Nothing lost: the outbox of a stored State is sent until the batch is settled.
//     It is the same each time, so that receivers recognise duplicates by their IDs.
//
// # Deduplication
//
// The state has one memory of the IDs of what took effect. A message is looked for in it
// and put into it once, when it leaves the Sorter. It stays for as long as it may come
// again, each reason with a limit of its own, so that a burst for one makes nothing
// forgotten that is remembered for another:
//
//	reason      why it comes again                        how long it is remembered
//	redelivery  the batch that took it is not settled     until it is settled, or an hour
//	rerun       its sender's checkpoint was lost, and     15 minutes, at most 2,048
//	            the sender runs again
//	retry       a client's library or the network sends   the last 128
//	            a client's signal again
//
// Requests that the Sorter orders are not in it for their sender's reruns, which label
// them anew: the Sorter has their IDs with the other things that it knows of the sender's
// execution (run.recent). It must: an episode may send thousands, which are to be known
// for as long as the episode may run again. They can be forgotten once the next episode
// is heard of, which only the labels tell. A memory with a limit of time or number would
// make each state of a busy entity large, or forget too soon.
//
// Which entities' last batch is settled is not in the state either, since it is known only
// after the state is stored. A dispatcher remembers it, which spares marking the batch as
// unsettled and sending its outbox again.
//
// # Who sorts and remembers
//
// A state is stored whole with each batch, so that what it has of each sender is what a call
// costs when there are many:
//
//  1. The Sorter has an entry for each sender, which it needs in full only for as
//     long as something waits or the sender's last batch is not settled. Others go into its
//     [past] when there are many: an entry becomes the marks of its IDs and last labels.
//  2. The past is limited, by time as entries are, and by number. What was forgotten for its
//     number counts as come, as what is older than the window does.
//  3. On a hub that delivers what instances send in order and once ([Settings].Exact) the
//     Sorter knows a few senders and nothing else. The memory has what clients sent, as
//     elsewhere, and of releases only those of locks that are yet to be asked for, which
//     comes by way of another entity.
//  4. Without a window nobody new gets an entry. Who has one is sorted, until it is forgotten
//     by the clock, since no labels tell the time.
package entity
