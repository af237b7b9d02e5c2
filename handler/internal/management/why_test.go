package management

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
)

// The place of an instance that has not started has separate members. Unknown members are omitted.
func TestWhy_HasThePlaceOfAnInstanceThatHasNotStarted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		place *durable.QueuePosition
		want  string
	}{
		{"none is known", nil, ""},
		{"a hub without partitions", &durable.QueuePosition{Partition: -1, MessagesAhead: 7, IsExact: true}, `{"messagesBefore":7,"isExact":true}`},
		{"a partition that nobody has", &durable.QueuePosition{Partition: 0, MessagesAhead: 3}, `{"partition":0,"messagesBefore":3,"isExact":false}`},
		{"a start message that is missing", &durable.QueuePosition{Partition: 0, StartMissing: true}, `{"partition":0,"messagesBefore":0,"isExact":false,"startMissing":true}`},
		{"a partition of a worker", &durable.QueuePosition{Partition: 2, Owner: "w1", MessagesAhead: 0, IsExact: true}, `{"partition":2,"owner":"w1","messagesBefore":0,"isExact":true}`},
	} {
		b, err := json.Marshal(reasonJSON(durable.Reason{Kind: durable.ReasonNotStarted, TaskID: -1, QueuePosition: c.place}))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Place json.RawMessage }
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if string(got.Place) != c.want {
			t.Errorf("%s: place is %s, want %s", c.name, got.Place, c.want)
		}
	}
}

// The OpenAPI document must contain every member of an answer, because it allows no others.
func TestWhy_HasOnlyDocumentedMembers(t *testing.T) {
	t.Parallel()
	compareMembers(t, reflect.TypeFor[statusjson.Why](), answerSchemas()["Why"].(schemaNode))
}

func compareMembers(t *testing.T, of reflect.Type, schema schemaNode) {
	t.Helper()
	for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
		if items, isList := schema["items"].(schemaNode); isList {
			schema = items
		}
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return
	}
	described := schema["properties"].(schemaNode)
	if len(described) != of.NumField() {
		t.Errorf("%v has %d members, the document has %d", of, of.NumField(), len(described))
	}
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		member, ok := described[name].(schemaNode)
		if !ok {
			t.Errorf("the document lacks member %q of %v", name, of)
			continue
		}
		compareMembers(t, f.Type, member)
	}
}
