// Package statusjson has the JSON of an instance's status, for the management API, which
// writes it, and the hub commands, which read it.
package statusjson

import "encoding/json"

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
	WaitsFor        string          `json:"waitsFor,omitempty"`     // a function that is not known; the extension has no such member
	Warning         string          `json:"warning,omitempty"`      // of the start that this answers; the extension has no such member
	HistoryEvents   []E             `json:"historyEvents,omitzero"` // nil if they were not asked for
}
