// Package statusjson has the JSON in which the management API tells of an
// instance, for who writes it and who reads it.
package statusjson

import "encoding/json"

// A Status is what is told of an instance whose events are told as an E
// (WebJobs.Extensions.DurableTask/StatusResponsePayload.cs). Nulls are written;
// members that may be left out say so.
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
