package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// event writes ev with the members of its .NET class in the order in which
// .NET writes them: fields, properties of the class, properties of HistoryEvent
// (DurableTask.Core/History/*.cs).
func (w *jsonWriter) event(ev history.Event) error {
	if ev == nil {
		return fmt.Errorf("encode message: no event")
	}
	eventType := int64(ev.Type())
	w.open(eventjson.TypeName(ev.Type()))
	switch ev := ev.(type) {
	case *history.ExecutionStarted:
		w.key("OrchestrationInstance")
		w.instance(ev.Instance)
		w.int("EventType", eventType)
		w.parent(ev.Parent)
		w.str("Name", ev.Name)
		w.str("Version", ev.Version)
		w.optStr("Input", ev.Input)
		w.tags("Tags", ev.Tags)
		w.optStr("Correlation", ev.Correlation)
		w.traceContext(ev.ParentTraceContext)
		if ev.ScheduledStart.IsZero() {
			w.null("ScheduledStartTime")
		} else {
			w.time("ScheduledStartTime", ev.ScheduledStart)
		}
		if ev.Generation == nil {
			w.null("Generation")
		} else {
			w.int("Generation", int64(*ev.Generation))
		}
		w.bool("GenerateNewTrace", ev.GenerateNewTrace)
	case *history.ExecutionCompleted:
		w.int("EventType", eventType)
		w.completion(ev.Status, ev.Result, ev.Failure)
	case *history.ContinueAsNew:
		w.int("EventType", eventType)
		w.completion(ev.Status, ev.Result, ev.Failure)
	case *history.ExecutionTerminated:
		w.int("EventType", eventType)
		w.optStr("Input", ev.Reason)
	case *history.ExecutionSuspended:
		w.int("EventType", eventType)
		w.optStr("Reason", ev.Reason)
	case *history.ExecutionResumed:
		w.int("EventType", eventType)
		w.optStr("Reason", ev.Reason)
	case *history.ExecutionRewound:
		w.int("EventType", eventType)
		w.optStr("Reason", ev.Reason)
		w.optStr("ParentExecutionId", ev.ParentExecutionID)
		w.optStr("InstanceId", ev.InstanceID)
		w.traceContext(ev.ParentTraceContext)
	case *history.TaskScheduled:
		w.int("EventType", eventType)
		w.str("Name", ev.Name)
		w.str("Version", ev.Version)
		w.optStr("Input", ev.Input)
		w.traceContext(ev.ParentTraceContext)
		w.tags("Tags", ev.Tags)
	case *history.TaskCompleted:
		w.int("EventType", eventType)
		w.int("TaskScheduledId", int64(ev.TaskScheduledID))
		w.optStr("Result", ev.Result)
	case *history.TaskFailed:
		w.int("EventType", eventType)
		w.taskFailure(ev.TaskScheduledID, ev.Reason, ev.Details, ev.Failure)
	case *history.SubOrchestrationInstanceCreated:
		w.int("EventType", eventType)
		w.str("Name", ev.Name)
		w.str("Version", ev.Version)
		w.str("InstanceId", ev.InstanceID)
		w.optStr("Input", ev.Input)
		w.optStr("ClientSpanId", ev.ClientSpanID)
		w.tags("Tags", ev.Tags)
	case *history.SubOrchestrationInstanceCompleted:
		w.int("EventType", eventType)
		w.int("TaskScheduledId", int64(ev.TaskScheduledID))
		w.optStr("Result", ev.Result)
	case *history.SubOrchestrationInstanceFailed:
		w.int("EventType", eventType)
		w.taskFailure(ev.TaskScheduledID, ev.Reason, ev.Details, ev.Failure)
	case *history.TimerCreated:
		w.int("EventType", eventType)
		w.time("FireAt", ev.FireAt)
	case *history.TimerFired:
		w.int("EventType", eventType)
		w.int("TimerId", int64(ev.TimerID))
		w.time("FireAt", ev.FireAt)
	case *history.OrchestratorStarted, *history.OrchestratorCompleted:
		w.int("EventType", eventType)
	case *history.EventSent:
		w.int("EventType", eventType)
		w.str("InstanceId", ev.InstanceID)
		w.str("Name", ev.Name)
		w.optStr("Input", ev.Input)
	case *history.EventRaised:
		w.int("EventType", eventType)
		w.str("Name", ev.Name)
		w.optStr("Input", ev.Input)
		w.traceContext(ev.ParentTraceContext)
	case *history.GenericEvent:
		w.optStr("Data", ev.Data)
		w.int("EventType", eventType)
	case *history.HistoryState:
		w.int("EventType", eventType)
		if ev.State == nil || !json.Valid([]byte(*ev.State)) {
			w.null("State")
		} else {
			w.raw("State", *ev.State)
		}
	default:
		return fmt.Errorf("encode message: event of type %T has no form on the wire", ev)
	}
	head := ev.Head()
	w.int("EventId", int64(head.EventID))
	w.bool("IsPlayed", head.IsPlayed)
	w.time("Timestamp", head.Timestamp)
	w.close()
	return nil
}

func (w *jsonWriter) completion(status history.RuntimeStatus, result *string, failure *history.FailureDetails) {
	w.int("OrchestrationStatus", int64(status))
	w.optStr("Result", result)
	w.key("FailureDetails")
	w.failure(failure)
}

func (w *jsonWriter) taskFailure(id int, reason, details *string, failure *history.FailureDetails) {
	w.int("TaskScheduledId", int64(id))
	w.optStr("Reason", reason)
	w.optStr("Details", details)
	w.key("FailureDetails")
	w.failure(failure)
}

// instance writes an instance as a value (DurableTask.Core/OrchestrationInstance.cs).
func (w *jsonWriter) instance(i history.OrchestrationInstance) {
	w.open("DurableTask.Core.OrchestrationInstance")
	w.str("InstanceId", i.InstanceID)
	w.strOrNull("ExecutionId", i.ExecutionID)
	w.close()
}

func (w *jsonWriter) parent(p *history.ParentInstance) {
	w.key("ParentInstance")
	w.parentValue(p)
}

func (w *jsonWriter) parentValue(p *history.ParentInstance) {
	if p == nil {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.open("DurableTask.Core.ParentInstance")
	w.str("Name", p.Name)
	w.key("OrchestrationInstance")
	w.instance(p.Instance)
	w.int("TaskScheduleId", int64(p.TaskScheduleID))
	w.str("Version", p.Version)
	w.close()
}

func (w *jsonWriter) traceContext(c *history.TraceContext) {
	w.key("ParentTraceContext")
	w.traceContextValue(c)
}

func (w *jsonWriter) traceContextValue(c *history.TraceContext) {
	if c == nil {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.open("DurableTask.Core.Tracing.DistributedTraceContext")
	w.str("TraceParent", c.TraceParent)
	w.optStr("TraceState", c.TraceState)
	w.optStr("Id", c.ID)
	w.optStr("SpanId", c.SpanID)
	w.optStr("ActivityStartTime", c.ActivityStartTime)
	w.close()
}

func (w *jsonWriter) tags(name string, tags map[string]string) {
	w.key(name)
	w.tagsValue(tags)
}

// tagsValue writes a dictionary, null for nil. Its type is left out. So is a
// tag that is called $type, which would be taken for it.
func (w *jsonWriter) tagsValue(tags map[string]string) {
	if tags == nil {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.open("")
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if k != eventjson.TypeMember {
			w.dictionaryKey(k)
			w.buf = appendJSONString(w.buf, tags[k])
		}
	}
	w.close()
}

// dictionaryKey begins a member whose name may need escaping.
func (w *jsonWriter) dictionaryKey(name string) {
	if w.buf[len(w.buf)-1] != '{' {
		w.buf = append(w.buf, ',')
	}
	w.buf = appendJSONString(w.buf, name)
	w.buf = append(w.buf, ':')
}

// failure writes failure details as a value (DurableTask.Core/FailureDetails.cs).
func (w *jsonWriter) failure(f *history.FailureDetails) {
	if f == nil {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.open("DurableTask.Core.FailureDetails")
	w.str("ErrorType", f.ErrorType)
	w.str("ErrorMessage", f.ErrorMessage)
	w.optStr("StackTrace", f.StackTrace)
	w.key("InnerFailure")
	w.failure(f.InnerFailure)
	w.bool("IsNonRetriable", f.IsNonRetriable)
	if f.Properties == nil {
		w.null("Properties")
	} else {
		w.key("Properties")
		w.open("")
		for _, k := range slices.Sorted(maps.Keys(f.Properties)) {
			if k == eventjson.TypeMember {
				continue
			}
			w.dictionaryKey(k)
			if v := f.Properties[k]; json.Valid([]byte(v)) {
				w.buf = append(w.buf, v...)
			} else {
				w.buf = appendJSONString(w.buf, v)
			}
		}
		w.close()
	}
	w.close()
}
