package tracing

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// maxTraceState is the maximum length of a trace state; a longer one is dropped completely
// (DurableTask.Core/Tracing/DistributedTraceContext.cs, TraceState).
const maxTraceState = 513

// encode returns a span's context in the form of events, or nil if it is invalid.
func encode(c trace.SpanContext) *history.TraceContext {
	if !c.IsValid() {
		return nil
	}
	t := &history.TraceContext{TraceParent: traceParent(c)}
	if s := c.TraceState().String(); s != "" && len(s) <= maxTraceState {
		t.TraceState = &s
	}
	return t
}

func traceParent(c trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", c.TraceID(), c.SpanID(), c.TraceFlags()&trace.FlagsSampled)
}

// decode returns the span context of an event; an invalid one if t is nil.
func decode(t *history.TraceContext) trace.SpanContext {
	if t == nil {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": t.TraceParent}
	if t.TraceState != nil {
		carrier["tracestate"] = *t.TraceState
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	return trace.SpanContextFromContext(ctx)
}

// offsetTime is the form of a DateTimeOffset in JSON.
const offsetTime = "2006-01-02T15:04:05.9999999-07:00"

// rootSpan is the span of a running orchestration. It is stored, with the parent's context, in the
// event that starts the orchestration.
type rootSpan struct {
	parent trace.SpanContext
	span   trace.SpanContext
	at     time.Time
}

// startRootSpan returns the span of the orchestration whose parent is in t, and t with that span
// added. If t has a span, the worker of the first episode chose it, and startRootSpan returns that
// one (TraceHelper.cs, StartTraceActivityForOrchestrationExecution). It returns nil and t if t has
// no valid parent.
func startRootSpan(t *history.TraceContext, now time.Time) (*rootSpan, *history.TraceContext) {
	parent := decode(t)
	if !parent.IsValid() {
		return nil, t
	}
	if t.ID != nil && t.SpanID != nil {
		id, err := trace.SpanIDFromHex(*t.SpanID)
		if err == nil {
			return &rootSpan{parent: parent, span: parent.WithSpanID(id).WithRemote(false), at: startTime(t, now)}, t
		}
	}
	b := &rootSpan{parent: parent, span: parent.WithSpanID(newSpanID()).WithRemote(false), at: now}
	kept := *t
	kept.ID = new(traceParent(b.span))
	kept.SpanID = new(b.span.SpanID().String())
	kept.ActivityStartTime = new(now.UTC().Format(offsetTime))
	return b, &kept
}

func startTime(t *history.TraceContext, now time.Time) time.Time {
	if t.ActivityStartTime == nil {
		return now
	}
	at, err := time.Parse(time.RFC3339Nano, *t.ActivityStartTime)
	if err != nil {
		return now
	}
	return at
}
