package eventjson

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Marshal encodes an event as an object with all members of its class, and its type's name in
// EventType. [Event] decodes it without loss.
func Marshal(ev history.Event) ([]byte, error) {
	w := &writer{}
	w.member("EventType", ev.Type().String())
	head := ev.Head()
	w.member("EventId", head.EventID)
	w.member("IsPlayed", head.IsPlayed)
	w.Time("Timestamp", &head.Timestamp)
	if !history.VisitFields(ev, w) {
		return nil, fmt.Errorf("encode event: %T is not a history event", ev)
	}
	return append(w.buf, '}'), w.err
}

// writer encodes the fields of an event as members of an object. It omits empty optional
// fields.
type writer struct {
	buf []byte
	err error
}

func (w *writer) member(name string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		w.err = fmt.Errorf("encode %s: %w", name, err)
		return
	}
	separator := byte(',')
	if len(w.buf) == 0 {
		separator = '{'
	}
	w.buf = append(strconv.AppendQuote(append(w.buf, separator), name), ':')
	w.buf = append(w.buf, text...)
}

func optional[T any](w *writer, name string, v *T) {
	if v != nil {
		w.member(name, v)
	}
}

func (w *writer) Since(_ byte, set bool) bool { return set }

func (w *writer) Bool(name string, v *bool) { w.member(name, *v) }

func (w *writer) Int(name string, v *int) { w.member(name, *v) }

func (w *writer) OptionalInt(name string, v **int) { optional(w, name, *v) }

func (w *writer) String(name string, v *string) { w.member(name, *v) }

func (w *writer) Text(name string, v **string) { optional(w, name, *v) }

func (w *writer) JSON(name string, v **string) {
	if *v != nil && json.Valid([]byte(**v)) {
		w.member(name, json.RawMessage(**v))
	}
}

func (w *writer) Time(name string, v *time.Time) { w.member(name, string(AppendTime(nil, *v))) }

func (w *writer) OptionalTime(name string, v *time.Time) {
	if !v.IsZero() {
		w.Time(name, v)
	}
}

func (w *writer) Tags(name string, v *map[string]string) {
	if *v != nil {
		w.member(name, *v)
	}
}

func (w *writer) Status(name string, v *history.RuntimeStatus) { w.member(name, int(*v)) }

func (w *writer) Instance(name string, v *history.OrchestrationInstance) {
	w.member(name, instanceOf(*v))
}

func (w *writer) Parent(name string, v **history.ParentInstance) {
	if p := *v; p != nil {
		w.member(name, Parent{Name: p.Name, Version: p.Version, OrchestrationInstance: instanceOf(p.Instance), TaskScheduleID: p.TaskScheduleID})
	}
}

func (w *writer) Trace(name string, v **history.TraceContext) {
	if c := *v; c != nil {
		w.member(name, TraceContext(*c))
	}
}

func (w *writer) Failure(name string, v **history.FailureDetails) {
	if *v != nil {
		w.member(name, failureOf(*v))
	}
}

func instanceOf(i history.OrchestrationInstance) *Instance {
	return &Instance{InstanceID: &i.InstanceID, ExecutionID: &i.ExecutionID}
}

func failureOf(f *history.FailureDetails) *Failure {
	if f == nil {
		return nil
	}
	all := &Failure{
		ErrorType: f.ErrorType, ErrorMessage: f.ErrorMessage, StackTrace: f.StackTrace,
		InnerFailure: failureOf(f.InnerFailure), IsNonRetriable: f.IsNonRetriable,
	}
	if f.Properties != nil {
		all.Properties = make(map[string]json.RawMessage, len(f.Properties))
		for name, value := range f.Properties {
			if all.Properties[name] = json.RawMessage(value); !json.Valid(all.Properties[name]) {
				all.Properties[name], _ = json.Marshal(value) // not JSON: encode it as a string
			}
		}
	}
	return all
}
