// Package jsontext has what encoding/json lacks: JSON without HTML escapes, and strings.
package jsontext

import (
	"bytes"
	"encoding/json"
)

// Marshal returns v as JSON. Unlike [json.Marshal] it leaves <, > and & as they are.
func Marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Unquote returns the text of a JSON string; ok is false for other JSON.
func Unquote(raw json.RawMessage) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, true
}

// Quote returns text as a JSON string.
func Quote(text string) json.RawMessage {
	quoted, _ := json.Marshal(text) // a string always can be
	return quoted
}
