package history

import "time"

// A FieldVisitor receives the fields of an event from [VisitFields]. Each method gets the .NET name of
// a field and a pointer to it, through which it can read or set the field.
type FieldVisitor interface {
	Bool(name string, v *bool)
	Int(name string, v *int)
	OptionalInt(name string, v **int)
	String(name string, v *string)
	Text(name string, v **string) // opaque text; nil means not set
	JSON(name string, v **string) // JSON text; nil means not set
	Time(name string, v *time.Time)
	OptionalTime(name string, v *time.Time) // the zero time means not set
	Tags(name string, v *map[string]string)
	Status(name string, v *RuntimeStatus)
	Instance(name string, v *OrchestrationInstance)
	Parent(name string, v **ParentInstance)
	Trace(name string, v **TraceContext)
	Failure(name string, v **FailureDetails)

	// Since guards fields that DurableTask does not have. version is the version of the event records
	// that added the fields; set reports whether the event has a value in one of them. Since reports
	// whether the visitor's format includes the fields. A format for .NET includes them only if they
	// are set: all other events keep .NET's bytes.
	Since(version byte, set bool) bool
}

// RecordVersion is the newest version of the event records, at least 1. It must be the highest version
// that [VisitFields] passes to [FieldVisitor.Since].
const RecordVersion = 1

// VisitFields calls a method of v for each field of ev, except its header. All storage formats of
// events derive from it. The order of the fields is the order of the members in .NET
// (DurableTask.Core/History/*.cs); a binary format depends on it. Add a new field of an event at the
// end, in a call of Since with a new [RecordVersion]:
//
//	if v.Since(2, ev.Priority != nil) {
//		v.OptionalInt("Priority", &ev.Priority)
//	}
//
// ok is false if ev is not one of the event types of this package.
func VisitFields(ev Event, v FieldVisitor) (ok bool) {
	switch ev := ev.(type) {
	case *ExecutionStarted:
		v.Instance("OrchestrationInstance", &ev.Instance)
		v.Parent("ParentInstance", &ev.Parent)
		v.String("Name", &ev.Name)
		v.String("Version", &ev.Version)
		v.Text("Input", &ev.Input)
		v.Tags("Tags", &ev.Tags)
		v.Text("Correlation", &ev.Correlation)
		v.Trace("ParentTraceContext", &ev.ParentTraceContext)
		v.OptionalTime("ScheduledStartTime", &ev.ScheduledStart)
		v.OptionalInt("Generation", &ev.Generation)
		v.Bool("GenerateNewTrace", &ev.GenerateNewTrace)
	case *ExecutionCompleted:
		visitOutcome(v, &ev.Status, &ev.Result, &ev.Failure)
	case *ContinueAsNew:
		visitOutcome(v, &ev.Status, &ev.Result, &ev.Failure)
	case *ExecutionTerminated:
		v.Text("Input", &ev.Reason)
	case *ExecutionSuspended:
		v.Text("Reason", &ev.Reason)
	case *ExecutionResumed:
		v.Text("Reason", &ev.Reason)
	case *ExecutionRewound:
		v.Text("Reason", &ev.Reason)
		v.Text("ParentExecutionId", &ev.ParentExecutionID)
		v.Text("InstanceId", &ev.InstanceID)
		v.Trace("ParentTraceContext", &ev.ParentTraceContext)
	case *TaskScheduled:
		v.String("Name", &ev.Name)
		v.String("Version", &ev.Version)
		v.Text("Input", &ev.Input)
		v.Trace("ParentTraceContext", &ev.ParentTraceContext)
		v.Tags("Tags", &ev.Tags)
	case *TaskCompleted:
		v.Int("TaskScheduledId", &ev.TaskScheduledID)
		v.Text("Result", &ev.Result)
	case *TaskFailed:
		visitFailure(v, &ev.TaskScheduledID, &ev.Reason, &ev.Details, &ev.Failure)
	case *SubOrchestrationInstanceCreated:
		v.String("Name", &ev.Name)
		v.String("Version", &ev.Version)
		v.String("InstanceId", &ev.InstanceID)
		v.Text("Input", &ev.Input)
		v.Text("ClientSpanId", &ev.ClientSpanID)
		v.Tags("Tags", &ev.Tags)
	case *SubOrchestrationInstanceCompleted:
		v.Int("TaskScheduledId", &ev.TaskScheduledID)
		v.Text("Result", &ev.Result)
	case *SubOrchestrationInstanceFailed:
		visitFailure(v, &ev.TaskScheduledID, &ev.Reason, &ev.Details, &ev.Failure)
	case *TimerCreated:
		v.Time("FireAt", &ev.FireAt)
	case *TimerFired:
		v.Int("TimerId", &ev.TimerID)
		v.Time("FireAt", &ev.FireAt)
	case *EventSent:
		v.String("InstanceId", &ev.InstanceID)
		v.String("Name", &ev.Name)
		v.Text("Input", &ev.Input)
	case *EventRaised:
		v.String("Name", &ev.Name)
		v.Text("Input", &ev.Input)
		v.Trace("ParentTraceContext", &ev.ParentTraceContext)
	case *GenericEvent:
		v.Text("Data", &ev.Data)
	case *HistoryState:
		v.JSON("State", &ev.State)
	case *OrchestratorStarted, *OrchestratorCompleted:
	default:
		return false
	}
	return true
}

func visitOutcome(v FieldVisitor, status *RuntimeStatus, result **string, failure **FailureDetails) {
	v.Status("OrchestrationStatus", status)
	v.Text("Result", result)
	v.Failure("FailureDetails", failure)
}

func visitFailure(v FieldVisitor, id *int, reason, details **string, failure **FailureDetails) {
	v.Int("TaskScheduledId", id)
	v.Text("Reason", reason)
	v.Text("Details", details)
	v.Failure("FailureDetails", failure)
}

// NewEvent returns an empty event of type t, nil if no event has this type.
func NewEvent(t EventType) Event {
	if t < 0 || int(t) >= len(newEvents) || newEvents[t] == nil {
		return nil
	}
	return newEvents[t]()
}

var newEvents = [...]func() Event{
	TypeExecutionStarted:                  func() Event { return new(ExecutionStarted) },
	TypeExecutionCompleted:                func() Event { return new(ExecutionCompleted) },
	TypeExecutionTerminated:               func() Event { return new(ExecutionTerminated) },
	TypeTaskScheduled:                     func() Event { return new(TaskScheduled) },
	TypeTaskCompleted:                     func() Event { return new(TaskCompleted) },
	TypeTaskFailed:                        func() Event { return new(TaskFailed) },
	TypeSubOrchestrationInstanceCreated:   func() Event { return new(SubOrchestrationInstanceCreated) },
	TypeSubOrchestrationInstanceCompleted: func() Event { return new(SubOrchestrationInstanceCompleted) },
	TypeSubOrchestrationInstanceFailed:    func() Event { return new(SubOrchestrationInstanceFailed) },
	TypeTimerCreated:                      func() Event { return new(TimerCreated) },
	TypeTimerFired:                        func() Event { return new(TimerFired) },
	TypeOrchestratorStarted:               func() Event { return new(OrchestratorStarted) },
	TypeOrchestratorCompleted:             func() Event { return new(OrchestratorCompleted) },
	TypeEventSent:                         func() Event { return new(EventSent) },
	TypeEventRaised:                       func() Event { return new(EventRaised) },
	TypeContinueAsNew:                     func() Event { return new(ContinueAsNew) },
	TypeGenericEvent:                      func() Event { return new(GenericEvent) },
	TypeHistoryState:                      func() Event { return new(HistoryState) },
	TypeExecutionSuspended:                func() Event { return new(ExecutionSuspended) },
	TypeExecutionResumed:                  func() Event { return new(ExecutionResumed) },
	TypeExecutionRewound:                  func() Event { return new(ExecutionRewound) },
}
