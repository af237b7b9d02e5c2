package tracing

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// maxTraceState is the longest trace state that is kept; a longer one is
// dropped whole (DurableTask.Core/Tracing/DistributedTraceContext.cs,
// TraceState).
const maxTraceState = 513

// encode returns a span's context as events hold it.
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

// decode returns the context that an event holds, invalid if it has none.
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

// The form of a DateTimeOffset in JSON.
const offsetTime = "2006-01-02T15:04:05.9999999-07:00"

// begun is when and as which span an orchestration began. It is kept with the
// parent's context in the event that starts it.
type begun struct {
	parent trace.SpanContext
	span   trace.SpanContext
	at     time.Time
}

// begin returns the span of the orchestration that t says the parent of, and t
// with that span in it. One that t has already is the span: the worker of the
// first episode chose it (TraceHelper.cs,
// StartTraceActivityForOrchestrationExecution).
func begin(t *history.TraceContext, now time.Time) (*begun, *history.TraceContext) {
	parent := decode(t)
	if !parent.IsValid() {
		return nil, t
	}
	if t.ID != nil && t.SpanID != nil {
		id, err := trace.SpanIDFromHex(*t.SpanID)
		if err == nil {
			return &begun{parent: parent, span: parent.WithSpanID(id).WithRemote(false), at: startTime(t, now)}, t
		}
	}
	b := &begun{parent: parent, span: parent.WithSpanID(newSpanID()).WithRemote(false), at: now}
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
