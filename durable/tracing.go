package durable

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"go.opentelemetry.io/otel/trace"
)

// Tracing writes spans to an OpenTelemetry tracer provider. It is also a field of
// [Config]. It uses the names, attributes and parents of Durable Functions' distributed
// tracing V2: create_orchestration, orchestration, activity, timer,
// orchestration_event, entity. Parent spans are stored with messages and histories, so
// a trace continues through workers of other programs, including .NET.
//
// Applies to: [NewClient].
//
// An orchestration is traced if its starter is traced. The worker that processes the
// end of an orchestration or of an awaited task writes its span. A rewound
// orchestration keeps its span ID, as in DurableTask.AzureStorage: each run that ends
// writes a span with that ID.
//
// Span IDs are chosen when spans start. The provider must therefore use [SpanIDs] as
// its ID generator:
//
//	sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(durable.SpanIDs{}), …)
//
// The zero value disables tracing, at no cost.
type Tracing struct{ Provider trace.TracerProvider }

func (t Tracing) applyClient(c *Client) { c.tracer = tracing.New(t.Provider) }

// SpanIDs is the ID generator that [Tracing] requires. Pass it to the SDK's tracer
// provider. Its IDs are random, except for spans whose ID is stored in a history.
type SpanIDs struct{}

// NewIDs returns the IDs of the first span of a trace.
func (SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return tracing.SpanIDs{}.NewIDs(ctx)
}

// NewSpanID returns the ID of another span of a trace.
func (SpanIDs) NewSpanID(ctx context.Context, id trace.TraceID) trace.SpanID {
	return tracing.SpanIDs{}.NewSpanID(ctx, id)
}
