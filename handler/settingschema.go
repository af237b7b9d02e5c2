package handler

import (
	"encoding/json"
	"strings"
)

// A settingSchema is a part of a JSON schema.
type settingSchema map[string]any

// hostSchema returns the JSON schema of the parts of host.json that this package
// reads, for editors to complete and check them. The rest of the file may hold
// whatever the host knows.
func hostSchema[C any](rows []settingRowOf[C]) ([]byte, error) {
	root := settingSchema{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "host.json of a Durable Functions app in Go",
		"description": "Made from the table of settings in package handler.",
		"type":        "object",
		"required":    []string{"version"},
		"properties":  settingSchema{"$schema": settingSchema{"type": "string"}},
	}
	for _, row := range rows {
		n := row.values.schema()
		n["description"] = plainText(sentence(row.does) + " Default: " + row.initial + ".")
		if row.inert != "" {
			n["description"] = plainText("No effect: " + row.inert + ".")
		}
		if row.fullPath() == "version" {
			n["const"] = "2.0"
		}
		names := strings.Split(row.fullPath(), ".")
		object := schemaObject(root, names[:len(names)-1])
		object[names[len(names)-1]] = n
		for _, name := range row.older {
			older := row.values.schema()
			older["description"], older["deprecated"] = "An older name of "+lastName(row.path)+".", true
			object[name] = older
		}
	}
	return json.MarshalIndent(root, "", "  ")
}

// schemaObject returns the properties of the object at path, which it adds if
// it is not there. In the objects that are all ours no other names may stand.
func schemaObject(root settingSchema, path []string) settingSchema {
	at := root
	for i, name := range path {
		properties, _ := at["properties"].(settingSchema)
		next, ok := properties[name].(settingSchema)
		if !ok {
			next = settingSchema{"type": "object", "properties": settingSchema{}}
			if full := strings.Join(path[:i+1], "."); full == durableTaskPath || strings.HasPrefix(full, durableTaskPath+".") {
				next["additionalProperties"] = false
			}
			properties[name] = next
		}
		at = next
	}
	properties, _ := at["properties"].(settingSchema)
	return properties
}

// sentence makes a sentence of a phrase.
func sentence(phrase string) string { return strings.ToUpper(phrase[:1]) + phrase[1:] + "." }

// plainText returns Markdown without its marks.
func plainText(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }
