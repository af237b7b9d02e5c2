package settings

import (
	"encoding/json"
	"strings"
)

// A Schema is a part of a JSON schema.
type Schema map[string]any

// HostSchema returns the JSON schema of the settings in rows, for editors. It allows
// all other members of host.json.
func HostSchema[C any](rows []Row[C]) ([]byte, error) {
	root := Schema{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "host.json of a Durable Functions app in Go",
		"description": "Made from the table of settings in package handler.",
		"type":        "object",
		"required":    []string{"version"},
		"properties":  Schema{"$schema": Schema{"type": "string"}},
	}
	for _, row := range rows {
		n := row.Values.schema()
		n["description"] = plainText(Sentence(row.Does) + " Default: " + row.Initial + ".")
		if row.Inert != "" {
			n["description"] = plainText("No effect: " + row.Inert + ".")
		}
		if row.FullPath() == "version" {
			n["const"] = "2.0"
		}
		names := strings.Split(row.FullPath(), ".")
		object := schemaObject(root, names[:len(names)-1])
		object[names[len(names)-1]] = n
		for _, name := range row.Older {
			older := row.Values.schema()
			older["description"], older["deprecated"] = "An older name of "+LastName(row.Path)+".", true
			object[name] = older
		}
	}
	return json.MarshalIndent(root, "", "  ")
}

// schemaObject returns the properties of the object at path, which it adds if
// needed. Below extensions.durableTask no other properties are allowed.
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

// Sentence makes a sentence of a phrase.
func Sentence(phrase string) string { return strings.ToUpper(phrase[:1]) + phrase[1:] + "." }

// plainText returns Markdown without its marks.
func plainText(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }
