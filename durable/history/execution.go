package history

import "time"

// ExecutionStarted begins an execution: it is the first event of a history
// after OrchestratorStarted, and the message that starts an instance.
type ExecutionStarted struct {
	Header
	Instance OrchestrationInstance
	Parent   *ParentInstance // nil for instances that a client started
	Name     string          // of the orchestrator
	Version  string
	Input    *string
	Tags     map[string]string

	Correlation        *string
	ParentTraceContext *TraceContext
	// ScheduledStart is when the instance is to start; zero means at once.
	ScheduledStart time.Time
	// Generation counts the earlier creations of the same instance ID. Clients
	// set it; it is nil on children and after continue-as-new.
	Generation       *int
	GenerateNewTrace bool
}

// ExecutionCompleted ends an execution, in whatever way Status says.
type ExecutionCompleted struct {
	Header
	Status  RuntimeStatus
	Result  *string // the output; for a failure its message
	Failure *FailureDetails
}

// ExecutionTerminated asks an instance to end at once. Reason becomes its
// output.
type ExecutionTerminated struct {
	Header
	Reason *string
}

// ExecutionSuspended asks an instance to take no notice of other events until
// it is resumed.
type ExecutionSuspended struct {
	Header
	Reason *string
}

// ExecutionResumed ends a suspension.
type ExecutionResumed struct {
	Header
	Reason *string
}

// ExecutionRewound records that a failed instance was rewound to before its
// failure.
type ExecutionRewound struct {
	Header
	Reason             *string
	ParentExecutionID  *string
	InstanceID         *string
	ParentTraceContext *TraceContext
}

// ContinueAsNew ended an execution in histories written by old versions of
// DurableTask. Today a new generation replaces the history and no such event
// is stored.
type ContinueAsNew struct {
	Header
	Status  RuntimeStatus
	Result  *string
	Failure *FailureDetails
}

// Type returns [TypeExecutionStarted].
func (*ExecutionStarted) Type() EventType { return TypeExecutionStarted }

// Type returns [TypeExecutionCompleted].
func (*ExecutionCompleted) Type() EventType { return TypeExecutionCompleted }

// Type returns [TypeExecutionTerminated].
func (*ExecutionTerminated) Type() EventType { return TypeExecutionTerminated }

// Type returns [TypeExecutionSuspended].
func (*ExecutionSuspended) Type() EventType { return TypeExecutionSuspended }

// Type returns [TypeExecutionResumed].
func (*ExecutionResumed) Type() EventType { return TypeExecutionResumed }

// Type returns [TypeExecutionRewound].
func (*ExecutionRewound) Type() EventType { return TypeExecutionRewound }

// Type returns [TypeContinueAsNew].
func (*ContinueAsNew) Type() EventType { return TypeContinueAsNew }

// IsSameChild reports whether two starts are of one child: the same action of the
// same parent scheduled them. Their executions differ if a program sent the start
// again under a new execution ID, or if the child has continued as new.
func (e *ExecutionStarted) IsSameChild(other *ExecutionStarted) bool {
	return e.Parent != nil && other != nil && other.Parent != nil &&
		e.Parent.Instance == other.Parent.Instance && e.Parent.TaskScheduleID == other.Parent.TaskScheduleID
}
