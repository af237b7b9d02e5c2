package stdorder

import (
	"container/list"
	"net/http"
	"net/textproto"
	"net/url"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func records(ctx *durable.Context, m map[string]int) (string, error) {
	values, header, fields, l := url.Values{}, http.Header{}, textproto.MIMEHeader{}, list.New()
	first := l.PushBack("first")
	for k := range m { // want `ranging over m writes to values`
		values.Add("x", k)
	}
	for k := range m { // want `ranging over m writes to header`
		header.Add("x", k)
	}
	for k := range m { // want `ranging over m writes to fields`
		fields.Add("x", k)
	}
	for k := range m { // want `ranging over m writes to l`
		l.PushBack(k)
	}
	for k := range m { // want `ranging over m writes to l`
		l.PushFront(k)
	}
	for k := range m { // want `ranging over m writes to l`
		l.InsertAfter(k, first)
	}
	for k := range m { // want `ranging over m writes to l`
		l.InsertBefore(k, first)
	}
	for k := range m {
		values.Add(k, "x")
		header.Set(k, "x")
	}
	return values.Encode(), nil
}
