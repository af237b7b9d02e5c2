package history

// SubOrchestrationInstanceCreated records that the orchestrator started a child.
type SubOrchestrationInstanceCreated struct {
	Header
	Name         string
	Version      string
	InstanceID   string  // of the child
	Input        *string // see [TaskScheduled.Input]
	ClientSpanID *string
	Tags         map[string]string
}

// SubOrchestrationInstanceCompleted reports that the child completed with Result. The child was
// created by the event with EventID TaskScheduledID.
type SubOrchestrationInstanceCompleted struct {
	Header
	TaskScheduledID int
	Result          *string
}

// SubOrchestrationInstanceFailed reports that the child failed or was terminated. The child was
// created by the event with EventID TaskScheduledID.
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
