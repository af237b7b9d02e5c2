package durable_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

// JSON in pages must be valid. Parts of host.json must use existing settings, with
// values that the schema allows.
func TestREADME_SettingsOfPagesExist(t *testing.T) {
	t.Parallel()
	var schema hostSchema
	text, err := os.ReadFile("../handler/host.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	settings := schema.Properties["extensions"].Properties["durableTask"]
	blocks, _ := docsBlocks(t)
	checked := 0
	for _, b := range blocks {
		if b.Language != "json" {
			continue
		}
		var value any
		if json.Unmarshal([]byte(b.Text), &value) != nil {
			if err := json.Unmarshal([]byte("{"+b.Text+"}"), &value); err != nil { // members of an object
				t.Errorf("%s: %v", b.At(), err)
				continue
			}
		}
		object, _ := value.(map[string]any)
		for name := range object {
			of := hostSchema{}
			switch {
			case object["extensions"] != nil && (name == "extensions" || name == "functionTimeout"):
				of = schema
			case settings.Properties[name].known():
				of = settings
			default:
				continue
			}
			checked++
			if err := of.Properties[name].check(object[name], name); err != nil {
				t.Errorf("%s: %v", b.At(), err)
			}
		}
	}
	t.Logf("settings in JSON blocks: %d checked", checked)
}

// hostSchema is the JSON schema of host.json or of a value in it.
type hostSchema struct {
	Type       any                   `json:"type"`
	Properties map[string]hostSchema `json:"properties"`
	Enum       []any                 `json:"enum"`
	Minimum    *float64              `json:"minimum"`
	Maximum    *float64              `json:"maximum"`
	Pattern    string                `json:"pattern"`
}

func (s hostSchema) known() bool { return s.Type != nil }

func (s hostSchema) check(value any, path string) error {
	if members, ok := value.(map[string]any); ok && s.Properties != nil {
		for name, member := range members {
			of := s.Properties[name]
			if !of.known() {
				return fmt.Errorf("%s has no setting %s", path, name)
			}
			if err := of.check(member, path+"."+name); err != nil {
				return err
			}
		}
		return nil
	}
	number, isNumber := value.(float64)
	text, isText := value.(string)
	switch {
	case s.Type == "object", s.Type == "integer" && !isNumber, s.Type == "boolean" && value != true && value != false,
		s.Enum != nil && !slices.Contains(s.Enum, value),
		s.Minimum != nil && number < *s.Minimum, s.Maximum != nil && number > *s.Maximum,
		s.Pattern != "" && isText && !regexp.MustCompile(s.Pattern).MatchString(text):
		return fmt.Errorf("%s cannot be %v", path, value)
	}
	return nil
}
