package history

import "strings"

// TaskScheduled records that the orchestrator scheduled an activity. It is also the message to the
// worker that runs the activity.
type TaskScheduled struct {
	Header
	Name    string
	Version string
	// Input is set in messages. In stored histories it is nil unless the hub stores inputs. Replay
	// does not use it.
	Input              *string
	ParentTraceContext *TraceContext
	Tags               map[string]string
}

// TaskCompleted reports that the activity returned Result. The activity was scheduled by the event
// with EventID TaskScheduledID.
type TaskCompleted struct {
	Header
	TaskScheduledID int
	Result          *string
}

// TaskFailed reports that the activity failed. The activity was scheduled by the event with EventID
// TaskScheduledID.
type TaskFailed struct {
	Header
	TaskScheduledID int
	Reason          *string         // the error message
	Details         *string         // a serialized .NET exception, from workers that propagate exceptions
	Failure         *FailureDetails // from all other workers
}

// FailureDetails describes an error independently of the programming language.
type FailureDetails struct {
	ErrorType      string
	ErrorMessage   string
	StackTrace     *string
	InnerFailure   *FailureDetails
	IsNonRetriable bool
	// Properties holds the properties from .NET's exception properties provider, each value as JSON
	// text.
	Properties map[string]string
}

// String returns "type: message". DurableTask uses this text as the output of a failed instance
// (DurableTask.Core/FailureDetails.cs, ToString).
func (f *FailureDetails) String() string { return f.ErrorType + ": " + f.ErrorMessage }

// TraceContext is a W3C trace context in the form that DurableTask stores in events.
type TraceContext struct {
	TraceParent       string
	TraceState        *string
	ID                *string
	SpanID            *string
	ActivityStartTime *string // a .NET DateTimeOffset, as text
}

// TraceID returns the ID of the trace in hexadecimal, or "" if t is nil or not valid.
func (t *TraceContext) TraceID() string {
	if t == nil {
		return ""
	}
	parts := strings.Split(t.TraceParent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

// Type returns [TypeTaskScheduled].
func (*TaskScheduled) Type() EventType { return TypeTaskScheduled }

// Type returns [TypeTaskCompleted].
func (*TaskCompleted) Type() EventType { return TypeTaskCompleted }

// Type returns [TypeTaskFailed].
func (*TaskFailed) Type() EventType { return TypeTaskFailed }
