package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// memberShape is a member of a JSON object, with the kind of its value.
type memberShape struct {
	Name, Kind string // Kind is null, text, bool or object; for $type it is the value
}

// shapeOf returns the members of an object in order, and the value of its inner failure.
func shapeOf(t *testing.T, object []byte) (shape []memberShape, inner json.RawMessage) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatalf("%v in %s", err, object)
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			t.Fatalf("%v in %s", err, object)
		}
		kind := map[byte]string{'n': "null", '"': "text", 't': "bool", 'f': "bool", '{': "object"}[value[0]]
		if name == "$type" {
			kind = string(value)
		}
		if name == "InnerFailure" {
			inner = value
		}
		shape = append(shape, memberShape{name.(string), kind})
	}
	return shape, inner
}

// failureIn returns the FailureDetails in an event, or in a column with their JSON.
func failureIn(t *testing.T, event []byte) json.RawMessage {
	t.Helper()
	var has struct{ FailureDetails json.RawMessage }
	if err := json.Unmarshal(event, &has); err != nil {
		t.Fatal(err)
	}
	return has.FailureDetails
}

// Each failure in a chain has the members of the recorded failures, with the same order and types. An
// inner failure has the same form (DurableTask.Core/FailureDetails.cs).
func TestFailures_HaveTheMembersOfDotNetAtEveryLevel(t *testing.T) {
	var recordedMessage, recordedColumn []memberShape
	for _, m := range recordings.Messages(t) {
		var env struct {
			TaskMessage struct{ Event json.RawMessage }
		}
		if !strings.Contains(m.Text, `"FailureDetails":{`) {
			continue
		}
		if err := json.Unmarshal([]byte(m.Text), &env); err != nil {
			t.Fatal(err)
		}
		recordedMessage, _ = shapeOf(t, failureIn(t, env.TaskMessage.Event))
	}
	for _, e := range recordings.Rows(t) {
		if text := e.Column(t, "FailureDetails"); strings.HasPrefix(text, "{") {
			recordedColumn, _ = shapeOf(t, []byte(text))
		}
	}
	if recordedMessage == nil || recordedColumn == nil {
		t.Fatal("no failure was recorded")
	}

	const depth = 8
	var failure *history.FailureDetails
	for range depth {
		failure = &history.FailureDetails{ErrorType: "T", ErrorMessage: "m", StackTrace: new("at x"), InnerFailure: failure}
	}
	event := &history.TaskFailed{Reason: new("m"), Failure: failure}
	text, err := EncodeEnvelope(&Envelope{ActivityID: uuid.New(), Message: &provider.TaskMessage{Event: event}})
	if err != nil {
		t.Fatal(err)
	}
	var env struct {
		TaskMessage struct{ Event json.RawMessage }
	}
	if err := json.Unmarshal(text, &env); err != nil {
		t.Fatal(err)
	}
	row := EncodeHistoryRow(event, "i", 0, "e")
	for name, c := range map[string]struct {
		object   []byte
		recorded []memberShape
	}{
		"a message": {failureIn(t, env.TaskMessage.Event), recordedMessage},
		"a row":     {[]byte(row.Text("FailureDetails")), recordedColumn},
	} {
		object := c.object
		for level := 1; level <= depth; level++ {
			var got []memberShape
			got, object = shapeOf(t, object)
			want := slices.Clone(c.recorded)
			if i := slices.Index(want, memberShape{"InnerFailure", "null"}); i >= 0 && level < depth {
				want[i].Kind = "object" // no recorded failure has properties
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: failure %d of the chain (-recorded +written):\n%s", name, level, diff)
			}
		}
	}
}
