package entity

import (
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
