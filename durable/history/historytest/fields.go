// Package historytest supports tests of the storage formats of events.
package historytest

import (
	"reflect"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

// RoundTrip checks that a storage format keeps every field of every event type. For each type it
// stores an event without fields, and one event for each field with only this field set. It reports
// the name of a lost field, and place, the code that lists the format's fields.
func RoundTrip(t *testing.T, place string, store func(history.Event) (history.Event, error)) {
	t.Helper()
	check := func(name string, want history.Event) {
		t.Helper()
		got, err := store(want)
		if err != nil {
			t.Errorf("%s: %v; see %s", name, err, place)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is not kept; see VisitFields in durable/history, and %s (-want +got):\n%s", name, place, diff)
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
	switch ev := ev.(type) { // a timer always has a time, and Azure Storage cannot store times before 1601
	case *history.TimerCreated:
		ev.FireAt = at.Add(time.Hour)
	case *history.TimerFired:
		ev.FireAt = at.Add(time.Hour)
	}
	return ev
}

var at = time.Date(2026, 1, 2, 3, 4, 5, 678901200, time.UTC)

// fill sets v and all fields below it to non-zero values. Strings are JSON text.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(history.Failed))
	case reflect.String:
		v.SetString(`{"a":1}`)
	case reflect.Map: // of strings
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
