package entity

import (
	"encoding/json"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Trace is what a request tells of the trace that it belongs to
// (DurableTask.Core/Entities/EventFormat/RequestMessage.cs, ParentTraceContext,
// CreateTrace and RequestTime).
type Trace struct {
	Parent *history.TraceContext // nil if it belongs to none
	Create bool                  // the span of a signal is yet to be written
	At     time.Time             // when the request was made; zero if it does not tell
}

type wireTrace struct {
	TraceParent string  `json:"TraceParent"`
	TraceState  *string `json:"TraceState"`
}

// Trace returns what the request tells of its trace.
func (r *Request) Trace() Trace {
	t := Trace{Create: r.createTrace}
	var parent wireTrace
	if r.traceContext != "" && json.Unmarshal([]byte(r.traceContext), &parent) == nil && parent.TraceParent != "" {
		t.Parent = &history.TraceContext{TraceParent: parent.TraceParent, TraceState: parent.TraceState}
	}
	var at time.Time
	if r.requestTime != "" && json.Unmarshal([]byte(r.requestTime), &at) == nil {
		t.At = at
	}
	return t
}

// SetTrace has the request tell of a trace.
func (r *Request) SetTrace(t Trace) {
	r.traceContext, r.requestTime, r.createTrace = "", "", t.Create
	if t.Parent != nil {
		text, err := json.Marshal(wireTrace{t.Parent.TraceParent, t.Parent.TraceState})
		if err != nil {
			return // strings can be encoded
		}
		r.traceContext = string(text)
	}
	if !t.At.IsZero() {
		r.requestTime = `"` + history.Ticks(t.At).UTC().Format("2006-01-02T15:04:05.9999999-07:00") + `"`
	}
}
