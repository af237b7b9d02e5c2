// Package statusjson defines the JSON of an instance's status. The management API writes it, and the
// hub commands read it.
package statusjson

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A Status is the JSON of an instance's status, with history events of type E
// (WebJobs.Extensions.DurableTask/StatusResponsePayload.cs). Members without omitempty may be null.
type Status[E any] struct {
	Name            string          `json:"name"`
	InstanceID      string          `json:"instanceId"`
	RuntimeStatus   string          `json:"runtimeStatus"`
	Input           json.RawMessage `json:"input"`
	CustomStatus    json.RawMessage `json:"customStatus"`
	Output          json.RawMessage `json:"output"`
	CreatedTime     string          `json:"createdTime"`
	LastUpdatedTime string          `json:"lastUpdatedTime"`
	Version         string          `json:"version,omitempty"`
	Tags            Tags            `json:"tags,omitempty"`         // not in the .NET extension
	WaitsFor        string          `json:"waitsFor,omitempty"`     // a note about a function that the app does not run; not in the .NET extension
	Warning         string          `json:"warning,omitempty"`      // about the start that this answers; not in the .NET extension
	RunsHere        []Running       `json:"runsHere,omitempty"`     // activities and steps in the process that answers; not in the .NET extension
	HistoryEvents   []E             `json:"historyEvents,omitzero"` // nil unless requested
}

// A Running is a running activity or step. The time is in RFC 3339.
type Running struct {
	Kind    string `json:"kind"` // a durable.ReasonKind
	Name    string `json:"name"`
	TaskID  int    `json:"taskId"`
	Attempt int    `json:"attempt,omitempty"` // at a step
	Since   string `json:"since"`
}

// Tags are the tags of an instance.
type Tags map[string]string

// Contain reports whether t contains the tag in text: NAME with any value, or NAME=VALUE.
func (t Tags) Contain(text string) bool {
	name, want, valued := strings.Cut(text, "=")
	value, ok := t[strings.TrimSpace(name)]
	return ok && (!valued || value == strings.TrimSpace(want))
}

// String returns the tags as NAME=VALUE, sorted by name and separated by spaces.
func (t Tags) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		all = append(all, name+"="+t[name])
	}
	return strings.Join(all, " ")
}
