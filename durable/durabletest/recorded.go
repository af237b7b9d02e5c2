package durabletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// An object is one JSON object of a recorded history, usually an event.
type object map[string]json.RawMessage

func (o object) has(name string) bool {
	_, ok := o[name]
	return ok
}

// objectsOf returns the event objects in a file. The file has an array, an object with the array as a
// member, or a sequence of objects. status is the status object that contains the array, nil without such
// an object.
func objectsOf(text []byte) (status object, all []object, err error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	for values := json.NewDecoder(bytes.NewReader(withoutPreface(text))); ; {
		var value json.RawMessage
		switch err := values.Decode(&value); {
		case errors.Is(err, io.EOF):
			return status, all, nil
		case err != nil:
			return nil, nil, fmt.Errorf("it is not valid JSON: %w", err)
		}
		if value[0] == '{' {
			var o object
			if err := json.Unmarshal(value, &o); err != nil {
				return nil, nil, err
			}
			switch {
			case o.has("historyEvents"):
				status, value = o, o["historyEvents"]
			case o.has("runtimeStatus"):
				return nil, nil, errors.New("the status has no historyEvents; fetch it with showHistory=true&showHistoryOutput=true")
			case o.has("value"):
				value = o["value"]
			default:
				all = append(all, o)
				continue
			}
		}
		var list []object
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, nil, fmt.Errorf("it has no list of events: %w", err)
		}
		all = append(all, list...)
	}
}

// withoutPreface removes the lines that func prints before the JSON.
func withoutPreface(text []byte) []byte {
	for rest := text; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if line = bytes.TrimSpace(line); bytes.HasPrefix(line, []byte("{")) || bytes.Equal(line, []byte("[")) || bytes.HasPrefix(line, []byte("[{")) {
			return rest // a line such as "[2024-01-01T00:00:00Z] text" is not JSON
		}
		rest = after
	}
	return text
}

// currentRows returns the rows of the instance's current execution, in order. Rows of an older and
// longer execution may follow them in the table
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, GetHistoryEventsAsync).
func currentRows(rows []object) ([]object, error) {
	const sentinel = "sentinel"
	slices.SortStableFunc(rows, func(a, b object) int { return strings.Compare(a.text("RowKey"), b.text("RowKey")) })
	execution := rows[0].text("ExecutionId")
	for _, r := range rows {
		if r.text("PartitionKey") != rows[0].text("PartitionKey") {
			return nil, fmt.Errorf("it has rows of two instances, %s and %s", rows[0].text("PartitionKey"), r.text("PartitionKey"))
		}
		if r.text("RowKey") == sentinel {
			execution = r.text("ExecutionId")
		}
	}
	var current []object
	for _, r := range rows {
		if r.text("RowKey") == sentinel {
			continue
		}
		if r.text("ExecutionId") != execution {
			break
		}
		for name, value := range r {
			if column, ok := strings.CutSuffix(name, "BlobName"); ok && string(value) != `""` && string(value) != "null" {
				return nil, fmt.Errorf("row %s: the value of %s is in the blob %s, which is not part of the file", r.text("RowKey"), column, r.text(name))
			}
		}
		current = append(current, r)
	}
	return current, nil
}

// text returns a member that is a string, and an empty string for any other value.
func (o object) text(name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

// decodeAll decodes objects that contain all members of their events.
func decodeAll(objects []object) ([]history.Event, error) {
	events := make([]history.Event, len(objects))
	for i, o := range objects {
		e, err := o.event()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		events[i] = e
	}
	return events, nil
}

// nested lists the members that table columns hold as JSON text.
var nested = []string{"OrchestrationInstance", "ParentInstance", "Tags", "ParentTraceContext", "FailureDetails", "State"}

// event decodes the event in an object.
func (o object) event() (history.Event, error) {
	kind, ok := history.ParseEventType(o.text("EventType"))
	if !ok {
		return nil, fmt.Errorf("unknown EventType %s", o["EventType"])
	}
	members := make(object, len(o))
	for name, value := range o {
		members[name] = value
	}
	if at, ok := o["_Timestamp"]; ok { // the table's own Timestamp is the time of the row's last write
		members["Timestamp"] = at
	}
	for _, name := range nested {
		if text := o.text(name); text != "" {
			members[name] = json.RawMessage(text)
		} else if string(o[name]) == `""` {
			delete(members, name)
		}
	}
	if status, ok := history.ParseRuntimeStatus(o.text("OrchestrationStatus")); ok {
		members["OrchestrationStatus"] = json.RawMessage(fmt.Sprint(int(status)))
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	var e eventjson.Event
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return e.Decode(kind)
}
