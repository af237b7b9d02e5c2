// Package history defines the events that an orchestration's history is made
// of, as plain data: the one vocabulary that authors' code, replay and storage
// providers share.
//
// An instance's history is the list of events of its current execution. Each
// wake-up of the instance, called an episode, appends [OrchestratorStarted],
// the events that arrived, the events that record what the orchestrator
// decided, and [OrchestratorCompleted].
//
// Names, numbers and members are those of DurableTask.Core
// (src/DurableTask.Core/History/*.cs), with the suffix "Event" taken off.
// Payloads are opaque text, normally JSON; a nil payload is .NET's null and
// differs from an empty one. How events look on the wire is the providers'
// business.
package history
