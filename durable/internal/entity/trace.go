package entity

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Trace is the trace of a request (DurableTask.Core/Entities/EventFormat/RequestMessage.cs,
// ParentTraceContext, CreateTrace and RequestTime).
type Trace struct {
	Parent *history.TraceContext // nil if it has no parent
	Create bool                  // the receiver writes the span of a signal
	At     time.Time             // when the request was created; zero if unknown
}

type wireTrace struct {
	TraceParent string  `json:"TraceParent"`
	TraceState  *string `json:"TraceState"`
}
