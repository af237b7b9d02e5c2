// Package dispatch joins a storage provider and replay. A [Dispatcher] fetches
// work items, runs them and hands back what came of them:
//
//	instance → reconcile → episode → record → Checkpoint → Commit
//	activity → call → TaskCompleted or TaskFailed → Complete
//
// The steps between are pure functions of their arguments, each in the file of
// its name: [reconcile] says which messages count, [record] turns decisions into
// events and messages, [nextStart] and [nextEvents] make the next generation of
// an orchestration that continues as new. What is around them has the
// goroutines, the clock and the log.
//
// Each item is handled by a goroutine of its own, and what goes wrong with it
// stays with it:
//
//  1. Whatever fails, the item is abandoned, and the provider delivers it again
//     later. Nothing is dropped but messages that nobody can want.
//  2. A panic and a runtime.Goexit, of user code or ours, end at most the item.
//  3. What a worker does not know, another may: it is held back, not failed.
//  4. Storage that fails is asked again for as long as the worker runs.
package dispatch
