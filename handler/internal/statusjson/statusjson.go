// Package statusjson has the JSON of an instance's status, for the management API, which
// writes it, and the hub commands, which read it.
package statusjson

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A Status is the JSON of an instance's status, whose history events are of type E
// (WebJobs.Extensions.DurableTask/StatusResponsePayload.cs). Nulls are
// written, except in members with omitempty.
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
	Tags            Tags            `json:"tags,omitempty"`         // the extension has no such member
	WaitsFor        string          `json:"waitsFor,omitempty"`     // a function that is not known; the extension has no such member
	Warning         string          `json:"warning,omitempty"`      // of the start that this answers; the extension has no such member
	HistoryEvents   []E             `json:"historyEvents,omitzero"` // nil if they were not asked for
}

// Tags are those of an instance.
type Tags map[string]string

// Have reports whether there is the tag that a text selects: NAME with any value, or
// NAME=VALUE.
func (t Tags) Have(text string) bool {
	name, want, valued := strings.Cut(text, "=")
	value, ok := t[strings.TrimSpace(name)]
	return ok && (!valued || value == strings.TrimSpace(want))
}

// String returns the tags in order, as NAME=VALUE with blanks between.
func (t Tags) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		all = append(all, name+"="+t[name])
	}
	return strings.Join(all, " ")
}
