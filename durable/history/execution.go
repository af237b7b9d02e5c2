package history

import "time"

// ExecutionStarted starts an execution. It is the message that starts an instance, and the first event
// of its history after OrchestratorStarted.
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
	// ScheduledStart is the time at which the instance starts; zero means immediately.
	ScheduledStart time.Time
	// Generation counts the earlier instances with the same ID. Clients set it. It is nil for children
	// and after continue-as-new.
	Generation       *int
	GenerateNewTrace bool
}

// ExecutionCompleted ends an execution with the given Status.
type ExecutionCompleted struct {
	Header
	Status  RuntimeStatus
	Result  *string // the output, or the message of a failure
	Failure *FailureDetails
}

// ExecutionTerminated ends an instance immediately. Reason becomes its output.
type ExecutionTerminated struct {
	Header
	Reason *string
}

// ExecutionSuspended suspends an instance: it processes no further events until it is resumed.
type ExecutionSuspended struct {
	Header
	Reason *string
}

// ExecutionResumed ends a suspension.
type ExecutionResumed struct {
	Header
	Reason *string
}

// ExecutionRewound records that a failed instance was rewound to the point before its failure.
type ExecutionRewound struct {
	Header
	Reason             *string
	ParentExecutionID  *string
	InstanceID         *string
	ParentTraceContext *TraceContext
}

// ContinueAsNew ended an execution in histories of old DurableTask versions. Current versions replace
// the history instead and store no such event.
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

// IsSameChild reports whether e and other start the same child: the same action of the same parent
// scheduled both. Their execution IDs may differ: a worker may send a start again under a new execution
// ID, and a child may have continued as new.
func (e *ExecutionStarted) IsSameChild(other *ExecutionStarted) bool {
	return e.Parent != nil && other != nil && other.Parent != nil &&
		e.Parent.Instance == other.Parent.Instance && e.Parent.TaskScheduleID == other.Parent.TaskScheduleID
}
