package history

// TaskScheduled records that the orchestrator scheduled an activity, and is
// the message that makes a worker run it.
type TaskScheduled struct {
	Header
	Name    string
	Version string
	// Input is set in messages. In stored histories it is nil unless the hub
	// stores inputs; replay does not need it.
	Input              *string
	ParentTraceContext *TraceContext
	Tags               map[string]string
}

// TaskCompleted says that the activity scheduled by event TaskScheduledID
// returned Result.
type TaskCompleted struct {
	Header
	TaskScheduledID int
	Result          *string
}

// TaskFailed says that the activity scheduled by event TaskScheduledID failed.
type TaskFailed struct {
	Header
	TaskScheduledID int
	Reason          *string         // the message
	Details         *string         // a serialized .NET exception, from workers that propagate those
	Failure         *FailureDetails // from all others
}

// FailureDetails describe an error in terms that every language has.
type FailureDetails struct {
	ErrorType      string
	ErrorMessage   string
	StackTrace     *string
	InnerFailure   *FailureDetails
	IsNonRetriable bool
	// Properties holds what .NET's exception properties provider adds, each
	// value as JSON text.
	Properties map[string]string
}

// String returns "type: message", the form in which DurableTask shows a
// failure as an instance's output (DurableTask.Core/FailureDetails.cs,
// ToString).
func (f *FailureDetails) String() string { return f.ErrorType + ": " + f.ErrorMessage }

// TraceContext is a W3C trace context as DurableTask keeps it in events. It is
// passed on unchanged.
type TraceContext struct {
	TraceParent       string
	TraceState        *string
	ID                *string
	SpanID            *string
	ActivityStartTime *string // a .NET DateTimeOffset, as text
}

// Type returns [TypeTaskScheduled].
func (*TaskScheduled) Type() EventType { return TypeTaskScheduled }

// Type returns [TypeTaskCompleted].
func (*TaskCompleted) Type() EventType { return TypeTaskCompleted }

// Type returns [TypeTaskFailed].
func (*TaskFailed) Type() EventType { return TypeTaskFailed }
