// Package jsontext encodes JSON without HTML escapes, and encodes and decodes JSON strings.
package jsontext

import (
	"bytes"
	"encoding/json"
)

// Marshal returns v as JSON. Unlike [json.Marshal] it does not escape <, > and &.
func Marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Unquote returns the value of a JSON string. It returns ok = false for any other JSON.
func Unquote(raw json.RawMessage) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, true
}

// Quote returns text as a JSON string.
func Quote(text string) json.RawMessage {
	quoted, _ := json.Marshal(text) // encoding a string always succeeds
	return quoted
}
