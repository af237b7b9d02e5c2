package eventjson_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// fill sets each field to something that is not its zero value.
type fill struct{}

func (fill) Bool(_ string, v *bool)                { *v = true }
func (fill) Int(name string, v *int)               { *v = len(name) }
func (fill) OptionalInt(name string, v **int)      { *v = new(len(name)) }
func (fill) String(name string, v *string)         { *v = "the " + name }
func (fill) Text(name string, v **string)          { *v = new(`{"<a>":"` + name + `"}`) }
func (fill) JSON(_ string, v **string)             { *v = new(`{"a":1}`) }
func (fill) Time(_ string, v *time.Time)           { *v = time.Date(2026, 1, 2, 3, 4, 5, 678901200, time.UTC) }
func (f fill) OptionalTime(n string, v *time.Time) { f.Time(n, v) }
func (fill) Tags(_ string, v *map[string]string)   { *v = map[string]string{"a": "b"} }
func (fill) Status(_ string, v *history.RuntimeStatus) {
	*v = history.Failed
}

func (fill) Instance(_ string, v *history.OrchestrationInstance) {
	*v = history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e"}
}

func (f fill) Parent(_ string, v **history.ParentInstance) {
	*v = &history.ParentInstance{Name: "P", Version: "1", TaskScheduleID: 7}
	f.Instance("", &(*v).Instance)
}

func (fill) Trace(_ string, v **history.TraceContext) {
	*v = &history.TraceContext{TraceParent: "tp", TraceState: new("ts"), ID: new("id"), SpanID: new("s"), ActivityStartTime: new("at")}
}

func (fill) Failure(_ string, v **history.FailureDetails) {
	*v = &history.FailureDetails{
		ErrorType: "T", ErrorMessage: "m", StackTrace: new("s"), IsNonRetriable: true,
		InnerFailure: &history.FailureDetails{ErrorType: "I"}, Properties: map[string]string{"n": "1", "t": `"x"`},
	}
}

// What is written of an event is read as the same, each field of each type of event, set
// or not.
func TestMarshal_LosesNothing(t *testing.T) {
	for kind := range history.TypeExecutionRewound + 1 {
		for _, full := range []bool{false, true} {
			ev := history.NewEvent(kind)
			if ev == nil {
				continue
			}
			if full {
				*ev.Head() = history.Header{EventID: 3, IsPlayed: true, Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
				history.VisitFields(ev, fill{})
			}
			text, err := eventjson.Marshal(ev)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			var read eventjson.Event
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatalf("%s: %v: %s", kind, err, text)
			}
			got, err := read.Decode(kind)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if !reflect.DeepEqual(got, ev) {
				t.Errorf("%s was read as %+v, want %+v: %s", kind, got, ev, text)
			}
		}
	}
}
