package memhub

import (
	"reflect"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// clone returns a copy of e that can be changed without changing e, as if it
// had been stored and read. What it points to is shared and never changed.
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
