// Package logstore keeps records in tables: durable by a [Log], readable from
// memory and a [Base].
//
// A [Writer] runs operations in groups. One goroutine takes all that are
// pending, applies them to one [Txn] and appends its changes to the log as one
// group, so that operations that come while the log writes share the next
// write. An operation returns when its group is durable. Where the log is slow, a
// group waits a little for the callers that the one before answered.
//
// A [Store] holds the changes of groups in layers in memory, on top of the base:
//
//	View = staged (of the Txn) over active over flushing over base
//
// The active layer takes the groups. When the log has grown to Limits.Flush
// bytes, the active layer becomes the flushing one, which is written to the base
// in the background, and the log turns. A record that is deleted by then never
// gets to the base.
//
// Invariants:
//
//   - Groups are numbered without gaps; group n+1 is appended after group n is
//     durable.
//   - A change is visible when its group is durable, and not before.
//   - base, flushing and active end with the groups base.last <= flushing.last <=
//     active.last = Store.last, and each has all groups up to its own.
//   - The log keeps every group after base.last.
//   - After an [UncertainError] of the log or the base nothing more is written to
//     it: what follows could build on what is not there.
//
// The package knows neither files nor instances: durable/internal/partition puts a task hub
// into it, and durable/embedded/internal/hubfile is its log and its base in files.
package logstore
