package entity

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Trace is the trace of a request
// (DurableTask.Core/Entities/EventFormat/RequestMessage.cs, ParentTraceContext,
// CreateTrace and RequestTime).
type Trace struct {
	Parent *history.TraceContext // nil if there is none
	Create bool                  // the span of a signal is yet to be written
	At     time.Time             // when the request was made; zero: unknown
}

type wireTrace struct {
	TraceParent string  `json:"TraceParent"`
	TraceState  *string `json:"TraceState"`
}
