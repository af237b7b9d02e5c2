package memhub

import (
	"reflect"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// clone returns a shallow copy of e, as if e had been stored and read. Values that e points to
// are shared and never changed.
func clone(e history.Event) history.Event {
	v := reflect.ValueOf(e).Elem()
	c := reflect.New(v.Type())
	c.Elem().Set(v)
	return c.Interface().(history.Event)
}

func cloneAll(events []history.Event) []history.Event {
	clones := make([]history.Event, len(events))
	for i, e := range events {
		clones[i] = clone(e)
	}
	return clones
}
