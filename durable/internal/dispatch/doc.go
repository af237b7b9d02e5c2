// Package dispatch runs the work items of a storage provider. A [Dispatcher] fetches work
// items, runs them and commits their results:
//
//	instance → reconcile → episode → record → Checkpoint → Commit
//	activity → call → TaskCompleted or TaskFailed → Complete
//
// The steps in between are pure functions. [reconcile] selects the messages that the execution
// can take. [record] turns decisions into events and messages. [nextStart] and [nextEvents]
// create the next generation of an orchestration that continues as new. The goroutines, the
// clock and the log surround them.
//
// Each item runs on a goroutine of its own, and its failures do not affect other items:
//
//  1. If an item fails, it is abandoned, and the provider delivers it again later. Only messages that
//     no execution can take are discarded.
//  2. A panic or a runtime.Goexit in user code or in this package ends at most the item.
//  3. An item whose function this worker lacks is held back, not failed: another worker may have the
//     function.
//  4. Failed fetches are retried until the worker stops. The result of an activity is sent up to
//     [completeTries] times. After that, or after a failed commit, the item is abandoned and runs
//     again.
package dispatch
