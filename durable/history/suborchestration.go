package history

// SubOrchestrationInstanceCreated records that the orchestrator started a
// child.
type SubOrchestrationInstanceCreated struct {
	Header
	Name         string
	Version      string
	InstanceID   string  // of the child
	Input        *string // see [TaskScheduled.Input]
	ClientSpanID *string
	Tags         map[string]string
}

// SubOrchestrationInstanceCompleted says that the child created by event
// TaskScheduledID completed with Result.
type SubOrchestrationInstanceCompleted struct {
	Header
	TaskScheduledID int
	Result          *string
}

// SubOrchestrationInstanceFailed says that the child created by event
// TaskScheduledID failed or was terminated.
type SubOrchestrationInstanceFailed struct {
	Header
	TaskScheduledID int
	Reason          *string
	Details         *string
	Failure         *FailureDetails
}

// Type returns [TypeSubOrchestrationInstanceCreated].
func (*SubOrchestrationInstanceCreated) Type() EventType {
	return TypeSubOrchestrationInstanceCreated
}

// Type returns [TypeSubOrchestrationInstanceCompleted].
func (*SubOrchestrationInstanceCompleted) Type() EventType {
	return TypeSubOrchestrationInstanceCompleted
}

// Type returns [TypeSubOrchestrationInstanceFailed].
func (*SubOrchestrationInstanceFailed) Type() EventType {
	return TypeSubOrchestrationInstanceFailed
}
