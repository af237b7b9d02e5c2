package history

// OrchestratorStarted starts an episode. Its timestamp is the orchestrator's current time during the
// whole episode, also in replay.
type OrchestratorStarted struct{ Header }

// OrchestratorCompleted ends an episode.
type OrchestratorCompleted struct{ Header }

// Type returns [TypeOrchestratorStarted].
func (*OrchestratorStarted) Type() EventType { return TypeOrchestratorStarted }

// Type returns [TypeOrchestratorCompleted].
func (*OrchestratorCompleted) Type() EventType { return TypeOrchestratorCompleted }
