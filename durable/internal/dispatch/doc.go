// Package dispatch joins a storage provider and replay. A [Dispatcher] fetches
// work items, runs them and commits their results:
//
//	instance → reconcile → episode → record → Checkpoint → Commit
//	activity → call → TaskCompleted or TaskFailed → Complete
//
// The steps between are pure functions of their arguments, each in the file of
// its name: [reconcile] selects the messages that count, [record] turns decisions
// into events and messages, [nextStart] and [nextEvents] make the next generation of
// an orchestration that continues as new. The goroutines, the clock and the log are
// around them.
//
// Each item has a goroutine of its own, and its failures affect no other:
//
//  1. If anything fails, the item is abandoned, and the provider delivers it again
//     later. Only messages that no execution can take are dropped.
//  2. A panic and a runtime.Goexit, of user code or ours, end at most the item.
//  3. An item whose function this worker lacks is held, not failed: another worker
//     may have it.
//  4. Storage operations that fail are retried for as long as the worker runs.
package dispatch
