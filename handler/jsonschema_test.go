package handler

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// lookup returns a value in nested objects, or the zero value.
func lookup[T any](in map[string]any, path ...string) T {
	var value any = in
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	out, _ := value.(T)
	return out
}

func resolve(document map[string]any, ref string) map[string]any {
	return lookup[map[string]any](document, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// refs returns the targets of all references in a value.
func refs(value any) (all []string) {
	switch value := value.(type) {
	case map[string]any:
		if ref, ok := value["$ref"].(string); ok {
			all = append(all, ref)
		}
		for _, child := range value {
			all = append(all, refs(child)...)
		}
	case []any:
		for _, child := range value {
			all = append(all, refs(child)...)
		}
	}
	return all
}

// violations returns where a value violates a JSON schema. It supports the features that the schemas
// here use.
func violations(document, schema map[string]any, value any, where string) (wrong []string) {
	if ref, ok := schema["$ref"].(string); ok {
		return violations(document, resolve(document, ref), value, where)
	}
	if choices, ok := schema["anyOf"].([]any); ok {
		for _, choice := range choices {
			if choice, ok := choice.(map[string]any); ok && len(violations(document, choice, value, where)) == 0 {
				return nil
			}
		}
		return []string{fmt.Sprintf("%s is %v, which fits none of %v", where, value, choices)}
	}
	say := func(format string, args ...any) { wrong = append(wrong, where+" "+fmt.Sprintf(format, args...)) }
	if want, ok := schema["type"].(string); ok && want != typeOf(value) && (want != "number" || typeOf(value) != "integer") {
		say("is %v, want a value of type %s", value, want)
		return wrong
	}
	if want, ok := schema["const"]; ok && want != value {
		say("is %v, want %v", value, want)
	}
	if names, ok := schema["enum"].([]any); ok {
		found := false
		for _, name := range names {
			found = found || name == value
		}
		if !found {
			say("is %v, want one of %v", value, names)
		}
	}
	switch v := value.(type) {
	case string:
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			say("is %q, want a match of %s", v, pattern)
		}
	case float64:
		if low, ok := schema["minimum"].(float64); ok && v < low {
			say("is %v, want at least %v", v, low)
		}
		if high, ok := schema["maximum"].(float64); ok && v > high {
			say("is %v, want at most %v", v, high)
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i, item := range v {
			wrong = append(wrong, violations(document, items, item, fmt.Sprintf("%s[%d]", where, i))...)
		}
	case map[string]any:
		wrong = append(wrong, objectViolations(document, schema, v, where)...)
	}
	return wrong
}

func objectViolations(document, schema, value map[string]any, where string) (wrong []string) {
	properties, _ := schema["properties"].(map[string]any)
	for name, member := range value {
		property, ok := properties[name].(map[string]any)
		switch {
		case ok:
			wrong = append(wrong, violations(document, property, member, where+"."+name)...)
		case schema["additionalProperties"] == false:
			wrong = append(wrong, where+"."+name+" is not documented")
		}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := value[fmt.Sprint(name)]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s lacks %v", where, name))
		}
	}
	return wrong
}

func typeOf(value any) string {
	switch v := value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The checker itself must find violations.
func TestViolations_AreFound(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	if err := json.Unmarshal([]byte(`{"type": "object", "required": ["a"], "additionalProperties": false,
		"properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "array", "items": {"enum": ["x"]}}}}`), &schema); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{
		`{"a": 1, "b": ["x"]}`: 0, `{"a": 0}`: 1, `{}`: 1, `{"a": 1, "c": 1}`: 1, `{"a": "1"}`: 1, `[]`: 1, `{"a": 1.5, "b": ["x", "y"]}`: 2,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if got := violations(schema, schema, value, "it"); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}
