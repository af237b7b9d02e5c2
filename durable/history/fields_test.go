package history_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// visited counts the fields that were visited, by their address.
type visited map[any]int

func (f visited) Bool(_ string, v *bool)                              { f[v]++ }
func (f visited) Int(_ string, v *int)                                { f[v]++ }
func (f visited) OptionalInt(_ string, v **int)                       { f[v]++ }
func (f visited) String(_ string, v *string)                          { f[v]++ }
func (f visited) Text(_ string, v **string)                           { f[v]++ }
func (f visited) JSON(_ string, v **string)                           { f[v]++ }
func (f visited) Time(_ string, v *time.Time)                         { f[v]++ }
func (f visited) OptionalTime(_ string, v *time.Time)                 { f[v]++ }
func (f visited) Tags(_ string, v *map[string]string)                 { f[v]++ }
func (f visited) Status(_ string, v *history.RuntimeStatus)           { f[v]++ }
func (f visited) Instance(_ string, v *history.OrchestrationInstance) { f[v]++ }
func (f visited) Parent(_ string, v **history.ParentInstance)         { f[v]++ }
func (f visited) Trace(_ string, v **history.TraceContext)            { f[v]++ }
func (f visited) Failure(_ string, v **history.FailureDetails)        { f[v]++ }

// What is not visited is stored nowhere.
func TestVisitFields_VisitsEachFieldOnce(t *testing.T) {
	types := 0
	for kind := range history.TypeExecutionRewound + 1 {
		ev := history.NewEvent(kind)
		if ev == nil {
			continue
		}
		types++
		if ev.Type() != kind {
			t.Errorf("a new %s is a %s", kind, ev.Type())
		}
		fields := visited{}
		if !history.VisitFields(ev, fields) {
			t.Errorf("%s is not visited", kind)
		}
		v := reflect.ValueOf(ev).Elem()
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Header" && fields[v.Field(i).Addr().Interface()] != 1 {
				t.Errorf("%s.%s is visited %d times", kind, name, fields[v.Field(i).Addr().Interface()])
			}
		}
	}
	if types != 21 {
		t.Errorf("%d types of events, want all 22 but ExecutionFailed", types)
	}
}
