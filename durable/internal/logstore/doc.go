// Package logstore stores records in tables. A [Log] makes changes durable; reads use memory
// and a [Base].
//
// A [Writer] runs operations in groups. One goroutine takes all pending operations, applies
// them to one [Txn] and appends the changes to the log as one group. Operations that arrive
// during the append join the next group. An operation returns when its group is durable. With a
// slow log, a group waits briefly for the callers that the previous group served.
//
// A [Store] holds the changes of groups in layers in memory, above the base:
//
//	View = staged (of the Txn) over active over flushing over base
//
// New groups are added to the active layer. When the log has grown to Limits.FlushSize bytes,
// the active layer becomes the flushing layer, and the log rotates: it starts a new part. A
// goroutine writes the flushing layer to the base. A record that is deleted before that never
// reaches the base.
//
// Invariants:
//
//   - Groups are numbered without gaps. Group n+1 is appended after group n is durable.
//   - A change becomes visible when its group is durable.
//   - The last groups of the layers satisfy base.last <= flushing.last <= active.last =
//     Store.last. Each layer, together with those below it, has all groups up to its last one.
//   - The log keeps every group after base.last.
//   - After an [UncertainError] of the log or the base, nothing more is written to it: a later
//     write could depend on a write that was lost.
//
// The package knows nothing of files or instances. durable/internal/partition stores a task hub
// in it; durable/embedded/internal/hubfile implements the log and the base with files.
package logstore
