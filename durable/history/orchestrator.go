package history

// OrchestratorStarted opens an episode. Its timestamp is the orchestrator's
// current time throughout the episode, in replay too.
type OrchestratorStarted struct{ Header }

// OrchestratorCompleted closes an episode.
type OrchestratorCompleted struct{ Header }

// Type returns [TypeOrchestratorStarted].
func (*OrchestratorStarted) Type() EventType { return TypeOrchestratorStarted }

// Type returns [TypeOrchestratorCompleted].
func (*OrchestratorCompleted) Type() EventType { return TypeOrchestratorCompleted }
