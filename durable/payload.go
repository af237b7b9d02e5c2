package durable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Void is the input type of a function without input, or the output type of a function
// without output. On the wire it is an absent payload.
type Void struct{}

// encode returns v as a JSON payload. Like .NET, it returns nil if v encodes as null;
// it also returns nil for a Void. A json.RawMessage is used as is.
func encode(v any) (*string, error) {
	var b strings.Builder
	if err := appendJSON(&b, v); err != nil {
		return nil, err
	}
	if b.String() == null {
		return nil, nil
	}
	return new(b.String()), nil
}

// encodeArgument returns v as the input of an activity. DurableTask passes an array of
// arguments, here with one element.
func encodeArgument(v any) (*string, error) {
	var b strings.Builder
	b.WriteByte('[')
	if err := appendJSON(&b, v); err != nil {
		return nil, err
	}
	b.WriteByte(']')
	return new(b.String()), nil
}

const null = "null"

// appendJSON appends the JSON of v. The error is a *[TextError] if that is not valid UTF-8, because of a
// [json.RawMessage]: a store would change it, and a replay would read another value.
func appendJSON(b *strings.Builder, v any) error {
	begin := b.Len()
	if err := appendAnyJSON(b, v); err != nil {
		return err
	}
	if text := b.String()[begin:]; !utf8.ValidString(text) {
		return &TextError{fmt.Sprintf("%.40q", text)}
	}
	return nil
}

func appendAnyJSON(b *strings.Builder, v any) error {
	switch v := v.(type) {
	case Void, struct{}:
		b.WriteString(null)
		return nil
	case json.RawMessage:
		raw := bytes.TrimSpace(v)
		switch {
		case len(raw) == 0:
			b.WriteString(null)
		case !json.Valid(raw):
			return fmt.Errorf("json.RawMessage %.40q is not JSON", raw)
		default:
			b.Write(raw)
		}
		return nil
	}
	e := json.NewEncoder(lineWriter{b})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// lineWriter writes lines of JSON without their line feeds.
type lineWriter struct{ *strings.Builder }

func (w lineWriter) Write(line []byte) (int, error) {
	w.Grow(len(line)) // the closing bracket of an argument needs no copy to a larger buffer
	w.Builder.Write(bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}

// decode decodes a payload. An absent payload is T's zero value. If the payload is a
// JSON string that does not decode as T, its content is decoded as JSON.
func decode[T any](payload *string) (T, error) {
	var v T
	if payload == nil {
		return v, nil
	}
	return decodeText[T](*payload)
}

func decodeText[T any](s string) (T, error) {
	var v T
	if strings.TrimSpace(s) == "" {
		return v, nil
	}
	switch p := any(&v).(type) {
	case *Void, *struct{}:
		return v, nil // ignore any payload
	case *json.RawMessage:
		if !json.Valid([]byte(s)) {
			return v, fmt.Errorf("%.40q is not JSON", s)
		}
		*p = json.RawMessage(s)
		return v, nil
	}
	err := json.Unmarshal([]byte(s), &v)
	if err == nil {
		return v, nil
	}
	if inner, ok := quotedJSON(s); ok {
		var v T
		if json.Unmarshal([]byte(inner), &v) == nil {
			return v, nil
		}
	}
	var zero T
	return zero, fmt.Errorf("as %T: %w", v, err)
}

// quotedJSON returns the content of a JSON string whose content is JSON. Some clients
// send all payloads as strings: "func durable start-new --input", "func durable
// raise-event --event-data", and the Python client.
func quotedJSON(s string) (inner string, ok bool) {
	if s = strings.TrimSpace(s); !strings.HasPrefix(s, `"`) || json.Unmarshal([]byte(s), &inner) != nil {
		return "", false
	}
	return inner, json.Valid([]byte(inner))
}

// decodeArgument decodes the input of an activity. The input is an array of one
// element, as DurableTask writes it, or the value itself.
func decodeArgument[T any](input *string) (T, error) {
	var zero T
	if input == nil {
		return zero, nil
	}
	s := strings.TrimSpace(*input)
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") {
		return decodeText[T](s)
	}
	element := s[1 : len(s)-1]
	v, err := decodeText[T](element)
	if err == nil {
		return v, nil
	}
	if whole, wholeErr := decodeText[T](s); wholeErr == nil {
		return whole, nil
	} else if !json.Valid([]byte(element)) {
		err = wholeErr // the array does not have exactly one element
	}
	return zero, err
}

// utf16Size returns the size of s in UTF-16 in bytes, like .NET.
func utf16Size(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return 2 * n
}

// TextError means that a text is not valid UTF-8. A hub cannot store such a text: it
// would be altered, or result in invalid JSON.
type TextError struct {
	What string // identifies the text, such as "EventRaised.Input"
}

// Error names the text.
func (e *TextError) Error() string {
	return e.What + " is not valid UTF-8; encode it, for instance as Base64"
}

// checkTexts returns a *[TextError] if v contains a string that is not valid UTF-8. It
// inspects structs and maps recursively. The parameter what names v in the error.
func checkTexts(what string, v any) error { return checkTextsOf(what, reflect.ValueOf(v)) }

func checkTextsOf(what string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return &TextError{what}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkTextsOf(what, v.Elem())
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if err := checkTextsOf(what, key); err != nil {
				return err
			}
			if err := checkTextsOf(fmt.Sprintf("%s[%v]", what, key), value); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			if err := checkTextsOf(what+"."+field.Name, value); err != nil {
				return err
			}
		}
	default: // other kinds contain no text
	}
	return nil
}

// Limits of the texts in the start of an orchestration, in bytes. Names and versions
// are stored in table rows only, also by .NET workers, and rows have no room for longer
// ones. Tags that do not fit into a row are stored in a blob.
const (
	MaxNameLength = 1024    // for the name of the orchestrator, and for a version
	MaxTagsLength = 1 << 20 // for the names and values of all tags of a call
)

// TooLongError means that a text is too long for the start of an orchestration.
type TooLongError struct {
	What          string // "name", "version" or "tags"
	Length, Limit int    // in bytes
}

// Error names the text and its limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("The %s of an orchestrator must not exceed %d bytes; it has %d.", e.What, e.Limit, e.Length)
}

// checkStart returns a *[TooLongError] if one of the texts exceeds its limit.
func checkStart(name string, version Version, tags map[string]string) error {
	inTags := 0
	for k, v := range tags {
		inTags += len(k) + len(v)
	}
	for _, e := range []*TooLongError{
		{"name", len(name), MaxNameLength}, {"version", len(version), MaxNameLength}, {"tags", inTags, MaxTagsLength},
	} {
		if e.Length > e.Limit {
			return e
		}
	}
	return nil
}

// text returns raw as a payload, or nil if raw is empty.
func text(raw json.RawMessage) (*string, error) {
	switch {
	case len(raw) == 0:
		return nil, nil
	case !utf8.Valid(raw):
		return nil, &TextError{fmt.Sprintf("%.40q", []byte(raw))}
	case !json.Valid(raw):
		return nil, fmt.Errorf("%.40q is not JSON", []byte(raw))
	}
	return new(string(raw)), nil
}
