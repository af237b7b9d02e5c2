package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// SpanIDs generates the IDs of traces and spans. The IDs are random, except for a span whose ID
// was chosen before. Use it as the ID generator of the SDK's tracer provider.
type SpanIDs struct{}

type chosenID struct{}

// withSpanID sets the ID of the next span that is started with the context.
func withSpanID(ctx context.Context, id trace.SpanID) context.Context {
	return context.WithValue(ctx, chosenID{}, id)
}

// NewIDs returns the IDs of a span that starts a trace.
func (g SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	var t trace.TraceID
	for !t.IsValid() {
		binary.LittleEndian.PutUint64(t[:8], rand.Uint64())
		binary.LittleEndian.PutUint64(t[8:], rand.Uint64())
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID returns the ID of a span in a trace.
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
