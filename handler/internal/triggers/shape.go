package triggers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
)

// A Shape determines how a value of an invocation is decoded. The host sends values in ambiguous forms
// (azure-functions-host: Workers/MessageExtensions/ScriptInvocationContextExtensions.cs,
// GetHttpScriptInvocationContextValue):
//
//  1. Bytes are a string that contains Base64.
//  2. A time is a string in ISO format.
//  3. An object is a JSON object.
//  4. Any other value is a string that contains JSON: the text hello is "\"hello\"", 1 is "1", and a
//     missing input is "null".
//
// Therefore the type of the Go value decides.
type Shape struct {
	kind         shapeKind
	Batch        bool // a list of such values
	MayBeMissing bool // null means that the value is missing
}

type shapeKind int

const (
	documentShape shapeKind = iota // decoded by encoding/json
	textShape
	binaryShape
	timeShape
	scalarShape // a number or a Boolean
)

// ShapeOf returns the shape of values that are decoded into t.
func ShapeOf(t reflect.Type) Shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return Shape{kind: timeShape}
	case t == reflect.TypeFor[json.RawMessage](), reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return Shape{}
	case t.Kind() == reflect.String:
		return Shape{kind: textShape}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return Shape{kind: binaryShape}
	case t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64:
		return Shape{kind: scalarShape}
	}
	return Shape{}
}

// BatchShapeOf is like [ShapeOf], for a trigger that passes several values as a slice.
func BatchShapeOf(t reflect.Type) Shape {
	s := ShapeOf(t)
	if s.kind == documentShape && t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]() {
		s = ShapeOf(t.Elem())
		s.Batch = true
	}
	return s
}

// Decode decodes a value of an invocation into a pointer.
func (s Shape) Decode(raw json.RawMessage, into any) error {
	plain, err := s.plain(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, into)
}

// plain converts the value to the JSON that encoding/json decodes.
func (s Shape) plain(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return json.RawMessage("null"), nil
	}
	if s.Batch {
		return s.plainBatch(raw)
	}
	text, isText := jsontext.Unquote(raw)
	if !isText {
		return s.fromJSON(raw)
	}
	return s.fromString(text)
}

// IsBinary reports whether the value is decoded into bytes.
func (s Shape) IsBinary() bool { return s.kind == binaryShape }

// fromString converts the content of a JSON string.
func (s Shape) fromString(text string) (json.RawMessage, error) {
	inner, quoted := jsontext.Unquote(json.RawMessage(text))
	switch {
	case quoted:
		return s.fromText(inner)
	case text == "null" && (s.MayBeMissing || s.kind != binaryShape):
		return json.RawMessage("null"), nil
	case s.kind == binaryShape:
		return fromBase64(text)
	case s.kind != timeShape && json.Valid([]byte(text)):
		return s.fromJSON(json.RawMessage(text))
	}
	return s.fromText(text) // a time, or text that a host did not quote
}

// fromText converts unquoted text.
func (s Shape) fromText(text string) (json.RawMessage, error) {
	switch s.kind {
	case textShape:
		return jsontext.Quote(text), nil
	case binaryShape:
		return json.Marshal([]byte(text))
	case timeShape:
		t, err := parseTime(text)
		if err != nil {
			return nil, err
		}
		return json.Marshal(t)
	case scalarShape:
		text = strings.TrimSpace(text)
		if strings.EqualFold(text, "true") || strings.EqualFold(text, "false") {
			text = strings.ToLower(text) // .NET writes True
		}
	case documentShape:
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	return jsontext.Quote(text), nil
}

// fromJSON converts a value that is not a string.
func (s Shape) fromJSON(raw json.RawMessage) (json.RawMessage, error) {
	if string(raw) == "null" || s.kind == documentShape || s.kind == scalarShape {
		return raw, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, err
	}
	return s.fromText(compact.String())
}

// deepestQuotes limits how often a list is unquoted. Event Hubs quotes it once, Cosmos DB twice.
const deepestQuotes = 4

// plainBatch unquotes a list and converts its elements. Bytes are Base64, texts are strings that are
// quoted once, and JSON may be such a text.
func (s Shape) plainBatch(raw json.RawMessage) (json.RawMessage, error) {
	for range deepestQuotes {
		text, isText := jsontext.Unquote(raw)
		if !isText {
			break
		}
		raw = json.RawMessage(strings.TrimSpace(text))
	}
	if string(raw) == "null" {
		return raw, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return nil, errors.New("it is not a list")
	}
	single := Shape{kind: s.kind}
	for i, element := range elements {
		plain, err := single.plainElement(element)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		elements[i] = plain
	}
	return json.Marshal(elements)
}

func (s Shape) plainElement(raw json.RawMessage) (json.RawMessage, error) {
	text, isText := jsontext.Unquote(raw)
	switch {
	case !isText:
		return s.fromJSON(raw)
	case s.kind == binaryShape:
		return fromBase64(text)
	}
	return s.fromText(text)
}

// fromBase64 converts bytes, encoded as Base64 or as plain text, to JSON.
func fromBase64(text string) (json.RawMessage, error) {
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		content = []byte(text)
	}
	return json.Marshal(content)
}

// timeFormats lists the formats of times: with an offset, like .NET's DateTimeOffset, and without one, like
// its DateTime, which is in UTC.
var timeFormats = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "01/02/2006 15:04:05 -07:00", "01/02/2006 15:04:05"}

func parseTime(text string) (time.Time, error) {
	for _, form := range timeFormats {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a valid time", text)
}

// decodeFields decodes values into a pointer to a struct or map. Names are matched like in
// encoding/json, without regard to case.
func decodeFields(values map[string]json.RawMessage, into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || (v.Elem().Kind() != reflect.Struct && v.Elem().Kind() != reflect.Map) {
		return fmt.Errorf("%T is not a pointer to a struct or map", into)
	}
	shapes := map[string]Shape{}
	if v.Elem().Kind() == reflect.Struct {
		for _, field := range reflect.VisibleFields(v.Elem().Type()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				name = field.Name
			}
			shapes[strings.ToLower(name)] = BatchShapeOf(field.Type)
		}
	}
	plain := make(map[string]json.RawMessage, len(values))
	for name, raw := range values {
		s, wanted := shapes[strings.ToLower(name)]
		if !wanted && v.Elem().Kind() == reflect.Struct {
			continue
		}
		value, err := s.plain(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		plain[name] = value
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
