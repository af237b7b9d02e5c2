// Package replay runs an orchestrator against its history: events in, actions out. It uses no
// clock, no storage and no goroutines of its own.
//
// [Execution.Episode] passes events to an [Execution] one by one. An event may wake coroutines
// of the orchestrator. They run until all of them wait again; then the next event follows
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvents). What the code decides becomes
// an [Action]; actions are numbered in program order.
//
// During replay, each event that records a decision is matched with the action of the same
// number. The first difference fails the execution with a [NonDeterminismError].
package replay
