// Package history defines the events of an orchestration's history, as plain data. Orchestrators,
// replay and storage providers all use these types.
//
// The history of an instance is the list of events of its current execution. An episode is the work of
// an instance from the arrival of events until it waits again. Each episode appends
// [OrchestratorStarted], the events that arrived, the events that record the orchestrator's decisions,
// and [OrchestratorCompleted].
//
// Names, numbers and members match DurableTask.Core (src/DurableTask.Core/History/*.cs), without the
// suffix "Event". Payloads are opaque text, normally JSON. A nil payload is .NET's null and differs
// from an empty one. Each provider defines its own storage format.
package history
