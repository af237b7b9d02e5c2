package otlp

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// traceKey is the key of the trace ID in the log records of an instance.
const traceKey = "traceId"

// A traced is a [slog.Handler] that sets the trace ID of an OpenTelemetry record. It uses the attribute
// traceId of the logger, unless the record's context has a span.
type traced struct {
	slog.Handler
	id      trace.TraceID
	grouped bool // further attributes are inside a group
}

// Handle implements [slog.Handler].
func (t *traced) Handle(ctx context.Context, r slog.Record) error {
	if t.id.IsValid() && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.id}))
	}
	return t.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (t *traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *t
	for _, a := range attrs {
		if a.Key != traceKey || t.grouped {
			continue
		}
		if id, err := trace.TraceIDFromHex(a.Value.String()); err == nil {
			n.id = id
		}
	}
	n.Handler = t.Handler.WithAttrs(attrs)
	return &n
}

// WithGroup implements [slog.Handler].
func (t *traced) WithGroup(name string) slog.Handler {
	return &traced{Handler: t.Handler.WithGroup(name), id: t.id, grouped: true}
}
