// Package historytest supports tests of the forms in which events are stored.
package historytest

import (
	"reflect"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

// RoundTrip checks that a form keeps each field of each type of event. It stores an event
// without any field, and then, for each field, an event with this field alone. A lost field is
// reported by its name and by place, which says where the form has its fields.
func RoundTrip(t *testing.T, place string, store func(history.Event) (history.Event, error)) {
	t.Helper()
	check := func(name string, want history.Event) {
		t.Helper()
		got, err := store(want)
		if err != nil {
			t.Errorf("%s: %v; see %s", name, err, place)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is not kept; see %s (-want +got):\n%s", name, place, diff)
		}
	}
	for kind := range history.TypeExecutionRewound + 1 {
		if history.NewEvent(kind) == nil {
			continue
		}
		check(kind.String()+" without fields", newEvent(kind))
		for i := range reflect.TypeOf(newEvent(kind)).Elem().NumField() {
			ev := newEvent(kind)
			field := reflect.ValueOf(ev).Elem().Field(i)
			if name := reflect.TypeOf(ev).Elem().Field(i).Name; name != "Header" {
				fill(field, 0)
				check(kind.String()+"."+name, ev)
			}
		}
	}
}

func newEvent(kind history.EventType) history.Event {
	ev := history.NewEvent(kind)
	*ev.Head() = history.Header{EventID: 3, IsPlayed: true, Timestamp: at}
	switch ev := ev.(type) { // a timer always has its time, and Azure Storage has no time before 1601
	case *history.TimerCreated:
		ev.FireAt = at.Add(time.Hour)
	case *history.TimerFired:
		ev.FireAt = at.Add(time.Hour)
	}
	return ev
}

var at = time.Date(2026, 1, 2, 3, 4, 5, 678901200, time.UTC)

// fill sets v, and all fields below it, to another value than the zero value. Texts are JSON.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(history.Failed))
	case reflect.String:
		v.SetString(`{"a":1}`)
	case reflect.Map: // of texts
		v.Set(reflect.ValueOf(map[string]string{"k": "1"}))
	case reflect.Pointer:
		if depth < 4 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(at))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	default:
		panic("package historytest: fill cannot set a " + v.Type().String())
	}
}
