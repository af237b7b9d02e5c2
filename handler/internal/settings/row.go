package settings

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// Paths of objects in host.json that contain settings.
const (
	DurableTaskPath = "extensions.durableTask"
	FlatPath        = "durableTask" // the schema of version 1 of the host
)

// A Row describes one setting of host.json. C is the type of the configuration.
type Row[C any] struct {
	// Path is the path of the setting, in the spelling of the extension's documentation. It is relative
	// to extensions.durableTask unless Absolute is true.
	Path     string
	Absolute bool

	// FormerNames lists former names in the same object. FlatName is the name directly below a
	// top-level durableTask, in the schema of version 1 of the host (Options/DurableTaskOptions.cs of
	// the extension's version 1).
	FormerNames []string
	FlatName    string

	// Values validates a value and stores it in the configuration.
	Values Values[C]

	// Check, if not nil, validates the value in context, after it is stored.
	Check func(cfg *C, path string, s Setting) error

	// Default describes the default in Markdown. PlanDefaults holds the different defaults of hosting
	// plans.
	Default      string
	PlanDefaults map[Plan]string

	// Get returns the setting's value in a configuration: a string, bool, int, time.Duration or
	// fmt.Stringer.
	Get func(cfg *C) any

	// Description describes the setting, as a phrase in Markdown.
	Description string

	// NeverEffective is the reason why the setting never has an effect, or "".
	NeverEffective string

	// NoEffect, if not nil, returns the reason why the setting has no effect in a configuration, or "".
	// It may use only settings of preceding rows.
	NoEffect func(cfg *C) string
}

// FullPath returns the complete path of the setting in host.json.
func (row *Row[C]) FullPath() string {
	if row.Absolute {
		return row.Path
	}
	return DurableTaskPath + "." + row.Path
}

// places returns all paths of the setting in order of precedence.
func (row *Row[C]) places() []string {
	path := row.FullPath()
	places := []string{path}
	for _, name := range row.FormerNames {
		places = append(places, path[:strings.LastIndexByte(path, '.')+1]+name)
	}
	if row.FlatName != "" {
		places = append(places, FlatPath+"."+row.FlatName)
	}
	return places
}

// onPlanOf returns the default on a plan, or "" if the plan has no default of its own. Flex Consumption
// inherits the defaults of Consumption
// (WebJobs.Extensions.DurableTask/AzureStorageDurabilityProviderFactory.cs).
func (row *Row[C]) onPlanOf(p Plan) string {
	if text := row.PlanDefaults[p]; text != "" || p != PlanFlex {
		return text
	}
	return row.PlanDefaults[PlanConsumption]
}

// An EffectiveSetting is the value of a setting and its source.
type EffectiveSetting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// Effective returns all settings that have an effect, with secrets masked. sources contains the sources
// of the settings that are set; nil means that the program set them all.
func Effective[C any](rows []Row[C], cfg *C, sources map[string]string) []EffectiveSetting {
	var out []EffectiveSetting
	for i := range rows {
		row := &rows[i]
		if row.NeverEffective != "" || row.Get == nil {
			continue
		}
		source := "default"
		switch given, ok := sources[row.FullPath()]; {
		case sources == nil:
			source = "the program"
		case ok:
			source = given
		}
		out = append(out, EffectiveSetting{row.FullPath(), shown(row.Get(cfg)), source})
	}
	return out
}

// shown returns a value in the form of host.json, with secrets masked.
func shown(value any) any {
	switch v := value.(type) {
	case time.Duration:
		return shortTimeSpan(v)
	case fmt.Stringer:
		return secrets.Mask(v.String())
	case string:
		return secrets.Mask(v)
	}
	return value
}

// A Schema is a part of a JSON schema.
type Schema map[string]any

// HostSchema returns the JSON schema of the settings in rows, for editors. The schema allows any other
// member of host.json.
func HostSchema[C any](rows []Row[C]) ([]byte, error) {
	root := Schema{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "host.json of a Durable Functions app in Go",
		"description": "Generated from the table of settings in package handler.",
		"type":        "object",
		"required":    []string{"version"},
		"properties":  Schema{"$schema": Schema{"type": "string"}},
	}
	for _, row := range rows {
		n := row.Values.schema()
		n["description"] = plainText(Sentence(row.Description) + " Default: " + row.Default + ".")
		if row.NeverEffective != "" {
			n["description"] = plainText("No effect: " + row.NeverEffective + ".")
		}
		if row.FullPath() == "version" {
			n["const"] = "2.0"
		}
		names := strings.Split(row.FullPath(), ".")
		object := schemaObject(root, names[:len(names)-1])
		object[names[len(names)-1]] = n
		for _, name := range row.FormerNames {
			older := row.Values.schema()
			older["description"], older["deprecated"] = "An older name of "+LastName(row.Path)+".", true
			object[name] = older
		}
	}
	return json.MarshalIndent(root, "", "  ")
}

// schemaObject returns the properties of the object at path. It adds missing objects. Objects at or
// below extensions.durableTask do not allow other properties.
func schemaObject(root Schema, path []string) Schema {
	at := root
	for i, name := range path {
		properties, _ := at["properties"].(Schema)
		next, ok := properties[name].(Schema)
		if !ok {
			next = Schema{"type": "object", "properties": Schema{}}
			if full := strings.Join(path[:i+1], "."); full == DurableTaskPath || strings.HasPrefix(full, DurableTaskPath+".") {
				next["additionalProperties"] = false
			}
			properties[name] = next
		}
		at = next
	}
	properties, _ := at["properties"].(Schema)
	return properties
}

// Sentence turns a phrase into a sentence.
func Sentence(phrase string) string { return strings.ToUpper(phrase[:1]) + phrase[1:] + "." }

// plainText removes code marks from Markdown.
func plainText(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }
