package history_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// visited records the visited fields.
type visited struct {
	times  map[any]int // number of visits, by the field's address
	names  []string    // names of the fields of version 1
	newest byte        // last version passed to Since
	set    bool        // true was passed to Since
}

func (f *visited) add(name string, v any) {
	f.times[v]++
	if f.newest <= 1 {
		f.names = append(f.names, name)
	}
}

func (f *visited) Since(version byte, set bool) bool {
	f.newest, f.set = max(f.newest, version), f.set || set
	return true
}

func (f *visited) Bool(name string, v *bool)                              { f.add(name, v) }
func (f *visited) Int(name string, v *int)                                { f.add(name, v) }
func (f *visited) OptionalInt(name string, v **int)                       { f.add(name, v) }
func (f *visited) String(name string, v *string)                          { f.add(name, v) }
func (f *visited) Text(name string, v **string)                           { f.add(name, v) }
func (f *visited) JSON(name string, v **string)                           { f.add(name, v) }
func (f *visited) Time(name string, v *time.Time)                         { f.add(name, v) }
func (f *visited) OptionalTime(name string, v *time.Time)                 { f.add(name, v) }
func (f *visited) Tags(name string, v *map[string]string)                 { f.add(name, v) }
func (f *visited) Status(name string, v *history.RuntimeStatus)           { f.add(name, v) }
func (f *visited) Instance(name string, v *history.OrchestrationInstance) { f.add(name, v) }
func (f *visited) Parent(name string, v **history.ParentInstance)         { f.add(name, v) }
func (f *visited) Trace(name string, v **history.TraceContext)            { f.add(name, v) }
func (f *visited) Failure(name string, v **history.FailureDetails)        { f.add(name, v) }

// A field that is not visited is not stored.
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
		fields := &visited{times: map[any]int{}}
		if !history.VisitFields(ev, fields) {
			t.Errorf("%s is not visited", kind)
		}
		v := reflect.ValueOf(ev).Elem()
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Header" && fields.times[v.Field(i).Addr().Interface()] != 1 {
				t.Errorf("VisitFields visits %s.%s %d times, want once", kind, name, fields.times[v.Field(i).Addr().Interface()])
			}
		}
		if fields.set {
			t.Errorf("VisitFields passes true to Since for a %s without values; .NET would get a null member", kind)
		}
		if fields.newest > history.RecordVersion {
			t.Errorf("VisitFields passes version %d to Since for %s, and RecordVersion is %d", fields.newest, kind, history.RecordVersion)
		}
	}
	if types != 21 {
		t.Errorf("%d types of events, want all 22 but ExecutionFailed", types)
	}
}

// Stored records contain the fields of version 1 in order and without names, so neither their number
// nor their order may change.
func TestVisitFields_KeepsTheFieldsOfVersion1(t *testing.T) {
	var got strings.Builder
	for kind := range history.TypeExecutionRewound + 1 {
		if ev := history.NewEvent(kind); ev != nil {
			fields := &visited{times: map[any]int{}}
			history.VisitFields(ev, fields)
			fmt.Fprintln(&got, strings.Join(append([]string{kind.String()}, fields.names...), " "))
		}
	}
	if got.String() != version1 {
		t.Errorf("the fields outside of Since are\n%swant\n%sPut a new field into a call of Since, with a new RecordVersion", got.String(), version1)
	}
}

const version1 = `ExecutionStarted OrchestrationInstance ParentInstance Name Version Input Tags Correlation ParentTraceContext ScheduledStartTime Generation GenerateNewTrace
ExecutionCompleted OrchestrationStatus Result FailureDetails
ExecutionTerminated Input
TaskScheduled Name Version Input ParentTraceContext Tags
TaskCompleted TaskScheduledId Result
TaskFailed TaskScheduledId Reason Details FailureDetails
SubOrchestrationInstanceCreated Name Version InstanceId Input ClientSpanId Tags
SubOrchestrationInstanceCompleted TaskScheduledId Result
SubOrchestrationInstanceFailed TaskScheduledId Reason Details FailureDetails
TimerCreated FireAt
TimerFired TimerId FireAt
OrchestratorStarted
OrchestratorCompleted
EventSent InstanceId Name Input
EventRaised Name Input ParentTraceContext
ContinueAsNew OrchestrationStatus Result FailureDetails
GenericEvent Data
HistoryState State
ExecutionSuspended Reason
ExecutionResumed Reason
ExecutionRewound Reason ParentExecutionId InstanceId ParentTraceContext
`
