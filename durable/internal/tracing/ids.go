package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// SpanIDs generates the IDs of traces and spans: at random, but for the spans
// whose ID was chosen before. It is what an SDK's tracer provider takes as its
// ID generator.
type SpanIDs struct{}

type chosenID struct{}

// withSpanID has the next span that is started with the context get an ID.
func withSpanID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, chosenID{}, id)
}

// NewIDs returns the IDs of a span that begins a trace.
func (g SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	var t trace.TraceID
	for !t.IsValid() {
		binary.LittleEndian.PutUint64(t[:8], rand.Uint64())
		binary.LittleEndian.PutUint64(t[8:], rand.Uint64())
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID returns the ID of a span of a trace.
func (SpanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if id, ok := ctx.Value(chosenID{}).(trace.SpanID); ok && id.IsValid() {
		return id
	}
	return newSpanID()
}

func newSpanID() trace.SpanID {
	var s trace.SpanID
	for !s.IsValid() {
		binary.LittleEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}
