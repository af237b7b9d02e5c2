package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// event writes ev with the members of its .NET class in .NET's order: fields, properties of the class,
// properties of HistoryEvent (DurableTask.Core/History/*.cs).
func (w *jsonWriter) event(ev history.Event) error {
	if ev == nil {
		return fmt.Errorf("encode message: no event")
	}
	w.open(eventjson.TypeName(ev.Type()))
	w.eventType = ev.Type()
	if !history.VisitFields(ev, (*eventWriter)(w)) {
		return fmt.Errorf("encode message: unknown event type %T", ev)
	}
	w.typeOfEvent()
	head := ev.Head()
	w.int("EventId", int64(head.EventID))
	w.bool("IsPlayed", head.IsPlayed)
	w.time("Timestamp", head.Timestamp)
	w.close()
	return nil
}

// typeOfEvent writes the event type, which .NET writes before the other properties.
func (w *jsonWriter) typeOfEvent() {
	if w.eventType != noEventType {
		w.int("EventType", int64(w.eventType))
		w.eventType = noEventType
	}
}

// noEventType means that the event type is written already.
const noEventType history.EventType = -1

// eventWriter writes the fields of an event to a jsonWriter.
type eventWriter jsonWriter

// property returns the writer for a member that is a property in .NET.
func (e *eventWriter) property() *jsonWriter {
	w := (*jsonWriter)(e)
	w.typeOfEvent()
	return w
}

func (e *eventWriter) Since(_ byte, set bool) bool { return set }

func (e *eventWriter) Bool(name string, v *bool) { e.property().bool(name, *v) }

func (e *eventWriter) Int(name string, v *int) { e.property().int(name, int64(*v)) }

func (e *eventWriter) OptionalInt(name string, v **int) {
	if *v == nil {
		e.property().null(name)
		return
	}
	e.Int(name, *v)
}

func (e *eventWriter) String(name string, v *string) { e.property().str(name, *v) }

func (e *eventWriter) Text(name string, v **string) {
	if name == "Data" { // a field in .NET
		(*jsonWriter)(e).optStr(name, *v)
		return
	}
	e.property().optStr(name, *v)
}

func (e *eventWriter) JSON(name string, v **string) {
	if *v == nil || !json.Valid([]byte(**v)) {
		e.property().null(name)
		return
	}
	e.property().raw(name, **v)
}

func (e *eventWriter) Time(name string, v *time.Time) { e.property().time(name, *v) }

func (e *eventWriter) OptionalTime(name string, v *time.Time) {
	if v.IsZero() {
		e.property().null(name)
		return
	}
	e.Time(name, v)
}

func (e *eventWriter) Tags(name string, v *map[string]string) { e.property().tags(name, *v) }

func (e *eventWriter) Status(name string, v *history.RuntimeStatus) {
	e.property().int(name, int64(*v))
}

// Instance writes a member that is a field in .NET.
func (e *eventWriter) Instance(name string, v *history.OrchestrationInstance) {
	w := (*jsonWriter)(e)
	w.key(name)
	w.instance(*v)
}

func (e *eventWriter) Parent(name string, v **history.ParentInstance) {
	w := e.property()
	w.key(name)
	w.parent(*v)
}

func (e *eventWriter) Trace(name string, v **history.TraceContext) {
	w := e.property()
	w.key(name)
	w.traceContext(*v)
}

func (e *eventWriter) Failure(name string, v **history.FailureDetails) {
	w := e.property()
	w.key(name)
	w.failure(*v)
}

// instance writes an instance as a value (DurableTask.Core/OrchestrationInstance.cs).
func (w *jsonWriter) instance(i history.OrchestrationInstance) {
	w.open("DurableTask.Core.OrchestrationInstance")
	w.str("InstanceId", i.InstanceID)
	w.strOrNull("ExecutionId", i.ExecutionID)
	w.close()
}

// parent writes the parent of an instance as a value (DurableTask.Core/ParentInstance.cs).
func (w *jsonWriter) parent(p *history.ParentInstance) {
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

// traceContext writes a trace context as a value
// (DurableTask.Core/Tracing/DistributedTraceContext.cs).
func (w *jsonWriter) traceContext(c *history.TraceContext) {
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

// tagsValue writes a dictionary, null for nil. It omits the dictionary's $type, and a tag with the
// name $type, which .NET would interpret as the type.
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

// dictionaryKey starts a member whose name may need escaping.
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
