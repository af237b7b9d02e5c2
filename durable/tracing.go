package durable

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"go.opentelemetry.io/otel/trace"
)

// Tracing has spans written to an OpenTelemetry tracer provider, with the
// names, attributes and parents of Durable Functions' distributed tracing V2:
// create_orchestration, orchestration, activity, timer, orchestration_event, entity.
// It is a [ClientOption], and a field of [Config]. Parents are kept with the
// messages and histories of the hub, so that a trace goes on through workers of
// other programs, also in .NET.
//
// An orchestration is traced if what started it was. Its span, and those of
// what it waits for, are written when they end, by whichever worker sees that.
// One that is rewound keeps its span, as in DurableTask.AzureStorage: that ID is
// written for each run that has ended. IDs are chosen when spans begin, so the
// provider must have [SpanIDs] as its ID generator:
//
//	sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(durable.SpanIDs{}), …)
//
// The zero value writes nothing and costs nothing.
type Tracing struct{ Provider trace.TracerProvider }

func (t Tracing) applyClient(c *Client) { c.tracer = tracing.New(t.Provider) }

// SpanIDs is the ID generator that [Tracing] needs: an SDK's tracer provider takes it.
// IDs are random, but for the spans whose ID is in a history.
type SpanIDs struct{}

// NewIDs returns the IDs of a span that begins a trace.
func (SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return tracing.SpanIDs{}.NewIDs(ctx)
}

// NewSpanID returns the ID of a span of a trace.
func (SpanIDs) NewSpanID(ctx context.Context, id trace.TraceID) trace.SpanID {
	return tracing.SpanIDs{}.NewSpanID(ctx, id)
}
