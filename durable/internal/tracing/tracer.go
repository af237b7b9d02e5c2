package tracing

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Source is the name of .NET's source of these spans.
const Source = "DurableTask.Core"

// Attribute keys (DurableTask.Core/Tracing/Schema.cs).
const (
	keyType        = attribute.Key("durabletask.type")
	keyName        = attribute.Key("durabletask.task.name")
	keyVersion     = attribute.Key("durabletask.task.version")
	keyInstanceID  = attribute.Key("durabletask.task.instance_id")
	keyExecutionID = attribute.Key("durabletask.task.execution_id")
	keyStatus      = attribute.Key("durabletask.task.status")
	keyTaskID      = attribute.Key("durabletask.task.task_id")
	keyEventTarget = attribute.Key("durabletask.event.target_instance_id")
	keyFireAt      = attribute.Key("durabletask.fire_at")
)

// Tracer writes spans.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer that writes to p; nil if p is nil.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{tracer: p.Tracer(Source)}
}

// spanName returns the name of a span of a function (TraceHelper.cs, CreateSpanName).
func spanName(kind, name, version string) string {
	if version != "" {
		return kind + ":" + name + "@(" + version + ")"
	}
	return kind + ":" + name
}

func functionAttributes(kind, name, version, instanceID string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{keyType.String(kind), keyName.String(name), keyInstanceID.String(instanceID)}
	if version != "" {
		attrs = append(attrs, keyVersion.String(version))
	}
	return attrs
}

// endSpan ends a span, with an error status if err is not nil.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// StartOrchestration starts the span of a client that starts an instance. It makes the span the
// parent in start. The caller must call done with the result.
func (t *Tracer) StartOrchestration(ctx context.Context, start *history.ExecutionStarted) (_ context.Context, done func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	attrs := functionAttributes("orchestration", start.Name, start.Version, start.Instance.InstanceID)
	attrs = append(attrs, keyExecutionID.String(start.Instance.ExecutionID))
	ctx, span := t.tracer.Start(ctx, spanName("create_orchestration", start.Name, start.Version),
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	start.ParentTraceContext = encode(span.SpanContext())
	return ctx, func(err error) { endSpan(span, err) }
}

// RaiseEvent starts the span of a client that raises an event. It makes the span the parent in
// the event. The caller must call done with the result.
func (t *Tracer) RaiseEvent(ctx context.Context, e *history.EventRaised, target string) (_ context.Context, done func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, spanName("orchestration_event", e.Name, ""), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(keyType.String("event"), keyName.String(e.Name), keyEventTarget.String(target)))
	e.ParentTraceContext = encode(span.SpanContext())
	return ctx, func(err error) { endSpan(span, err) }
}

// RunActivity starts the span of a running activity. It returns ctx unchanged if the
// orchestration is not traced. The caller must call done with the activity's failure, or nil.
func (t *Tracer) RunActivity(ctx context.Context, task *history.TaskScheduled, instance history.OrchestrationInstance) (_ context.Context, done func(*history.FailureDetails)) {
	if t == nil {
		return ctx, func(*history.FailureDetails) {}
	}
	parent := decode(task.ParentTraceContext)
	if !parent.IsValid() {
		return ctx, func(*history.FailureDetails) {}
	}
	attrs := functionAttributes("activity", task.Name, task.Version, instance.InstanceID)
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), spanName("activity", task.Name, task.Version),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(append(attrs, keyTaskID.Int(task.EventID))...))
	return ctx, func(f *history.FailureDetails) {
		if f != nil {
			span.SetStatus(codes.Error, f.ErrorMessage)
		}
		span.End()
	}
}

// endedSpan is a span whose start and ID were chosen earlier.
type endedSpan struct {
	id       trace.SpanID // invalid for a random one
	parent   trace.SpanContext
	name     string
	kind     trace.SpanKind
	from, to time.Time
	attrs    []attribute.KeyValue
	failure  *string
}

// write writes a span that has ended.
func (t *Tracer) write(p endedSpan) {
	ctx := withSpanID(trace.ContextWithRemoteSpanContext(context.Background(), p.parent), p.id)
	_, span := t.tracer.Start(ctx, p.name, trace.WithSpanKind(p.kind), trace.WithTimestamp(p.from), trace.WithAttributes(p.attrs...))
	if p.failure != nil {
		span.SetStatus(codes.Error, *p.failure)
	}
	span.End(trace.WithTimestamp(p.to))
}

// timerAttributes returns the attributes that only timers have. The time is in .NET's
// round-trip format.
func timerAttributes(e *history.TimerCreated) []attribute.KeyValue {
	return []attribute.KeyValue{
		keyFireAt.String(e.FireAt.UTC().Format("2006-01-02T15:04:05.0000000Z07:00")), keyTaskID.Int(e.EventID),
	}
}

// failureOf returns the error text of a failure event, or nil.
func failureOf(e history.Event) *string {
	var reason *string
	switch e := e.(type) {
	case *history.TaskFailed:
		reason = e.Reason
	case *history.SubOrchestrationInstanceFailed:
		reason = e.Reason
	default:
		return nil
	}
	if reason == nil {
		return new("no reason was given")
	}
	return reason
}

// SignalEntity makes the span of ctx, if there is one, the parent in a client's request to an
// entity. The worker that performs the operation writes the request's span
// (DurableTask.Core/TaskEntityDispatcher.cs, StartTraceActivityForSignalingEntity).
func (t *Tracer) SignalEntity(ctx context.Context, request string, now time.Time) string {
	if t == nil {
		return request
	}
	return stampRequest(request, trace.SpanContextFromContext(ctx), now)
}

// Entity returns the Entity with the given instance ID.
func (t *Tracer) Entity(instanceID string) *Entity {
	if t == nil {
		return nil
	}
	return &Entity{tracer: t, instanceID: instanceID}
}

// Instance returns the Instance with the given history.
func (t *Tracer) Instance(past []history.Event) *Instance {
	if t == nil {
		return nil
	}
	i := &Instance{tracer: t}
	i.learn(past, time.Time{})
	return i
}
