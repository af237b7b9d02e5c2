package tracing

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Attribute keys of entities, and the values of durabletask.task.operation
// (DurableTask.Core/Tracing/Schema.cs, TraceActivityConstants.cs).
const (
	keyOperation     = attribute.Key("durabletask.task.operation")
	keyScheduledTime = attribute.Key("durabletask.task.scheduled_time")
	keyEntityError   = attribute.Key("durabletask.entity.error_message")

	callEntity   = "call_entity"
	signalEntity = "signal_entity"
)

// entitySpanName returns the name of a span of an entity operation (TraceHelper.cs,
// CreateEntitySpanName).
func entitySpanName(id entity.ID, operation string) string {
	return "entity:" + id.Name + ":" + operation
}

func operationKind(signal bool) string {
	if signal {
		return signalEntity
	}
	return callEntity
}

// scheduled appends the due time, in .NET's invariant format, unless it is zero.
func scheduled(attrs []attribute.KeyValue, due time.Time) []attribute.KeyValue {
	if due.IsZero() {
		return attrs
	}
	return append(attrs, keyScheduledTime.String(due.UTC().Format("01/02/2006 15:04:05")))
}

// stampRequest returns an entity request with its parent span. It does not change a lock
// request or one that it cannot decode.
func stampRequest(request string, parent trace.SpanContext, now time.Time) string {
	c := encode(parent)
	if c == nil {
		return request
	}
	r, err := entity.DecodeRequest(&request)
	if err != nil || r.IsLock() {
		return request
	}
	r.SetTrace(entity.Trace{Parent: c, Create: true, At: now})
	return r.Encode()
}

// stampRequests makes an orchestration's span the parent of its entity requests, both in its
// messages and in its history.
func stampRequests(cp *provider.Checkpoint, b *rootSpan, now time.Time) {
	for n, m := range cp.Messages {
		raised, ok := m.Event.(*history.EventRaised)
		if !ok || !isEntity(m.Target.InstanceID) || raised.Input == nil || entity.IsRelease(raised.Name) {
			continue
		}
		before := *raised.Input
		text := stampRequest(before, b.span, now)
		if text == before {
			continue
		}
		raised = new(*raised)
		raised.Input = &text
		cp.Messages[n].Event = raised
		for k, e := range cp.NewEvents {
			if sent, ok := e.(*history.EventSent); ok && sent.InstanceID == m.Target.InstanceID && sent.Input != nil && *sent.Input == before {
				sent = new(*sent)
				sent.Input = &text
				cp.NewEvents[k] = sent
			}
		}
	}
}

// Entity writes the spans of an entity that a worker runs. A nil Entity does nothing.
type Entity struct {
	tracer     *Tracer
	instanceID string
	spans      []endedSpan // of the uncommitted batch
}

// Discard discards the spans of a batch that was not committed.
func (e *Entity) Discard() {
	if e != nil {
		e.spans = nil
	}
}

// Committed writes the spans of a committed batch.
func (e *Entity) Committed() {
	if e == nil {
		return
	}
	for _, p := range e.spans {
		e.tracer.write(p)
	}
	e.spans = nil
}

// Operation is the span of an operation of an entity. A nil Operation is not traced.
type Operation struct {
	of      *Entity
	op      *entity.Operation
	request *endedSpan // the request's span, if it is written here
	run     endedSpan
	span    trace.SpanContext // of run
}

// Begin starts the span of an operation. The span of a call's request ends with the operation.
// The span of a signal's request ends immediately; it is written here only if its sender did
// not write it (DurableTask.Core/TaskEntityDispatcher.cs,
// GetOperationRequestsAndTraceActivities and SendResultMessage).
func (e *Entity) Begin(op *entity.Operation, now time.Time) *Operation {
	if e == nil {
		return nil
	}
	parent := decode(op.Trace.Parent)
	if !parent.IsValid() {
		return nil
	}
	name, kinds := entitySpanName(op.Entity, op.Name), [2]trace.SpanKind{trace.SpanKindClient, trace.SpanKindServer}
	if op.Signal {
		kinds = [2]trace.SpanKind{trace.SpanKindProducer, trace.SpanKindConsumer}
	}
	common := []attribute.KeyValue{keyType.String("entity"), keyOperation.String(operationKind(op.Signal))}
	o := &Operation{of: e, op: op}
	if !op.Signal || op.Trace.Create {
		caller := parent
		parent = caller.WithSpanID(newSpanID()).WithRemote(false)
		o.request = &endedSpan{
			id: parent.SpanID(), parent: caller, name: name, kind: kinds[0], from: now, to: now,
			attrs: scheduled(append(common[:2:2], keyEventTarget.String(e.instanceID)), op.Due),
		}
		if at := op.Trace.At; !at.IsZero() && at.Before(now) {
			o.request.from = at
		}
	}
	o.span = parent.WithSpanID(newSpanID()).WithRemote(false)
	o.run = endedSpan{
		id: o.span.SpanID(), parent: parent, name: name, kind: kinds[1], from: now,
		attrs: append(common[:2:2], keyInstanceID.String(e.instanceID)),
	}
	return o
}

// Context returns ctx with the operation's span as the parent of its calls.
func (o *Operation) Context(ctx context.Context) context.Context {
	if o == nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, o.span)
}

// End ends the operation with result r. If counts is true, r's actions are carried out: each
// gets a span, which becomes the parent of the action.
func (o *Operation) End(r *entity.Result, counts bool, now time.Time) {
	if o == nil {
		return
	}
	if o.request != nil {
		if !o.op.Signal {
			o.request.to = now
		}
		o.of.spans = append(o.of.spans, *o.request)
	}
	o.run.to = now
	if r.Failure != nil {
		o.run.failure = &r.Failure.ErrorMessage
		o.run.attrs = append(o.run.attrs, keyEntityError.String(r.Failure.ErrorMessage))
	}
	o.of.spans = append(o.of.spans, o.run)
	if !counts {
		return
	}
	for _, a := range r.Actions {
		o.writeActionSpan(a, now)
	}
}

// writeActionSpan writes the span of a signal or a start. The name of a start's span has the opposite order
// of a client's, as in .NET (TraceHelper.cs, StartActivityForEntityStartingAnOrchestration).
func (o *Operation) writeActionSpan(a entity.Action, now time.Time) {
	span := o.span.WithSpanID(newSpanID())
	p := endedSpan{
		id: span.SpanID(), parent: o.span, kind: trace.SpanKindProducer, from: now, to: now,
		attrs: []attribute.KeyValue{keyType.String("entity"), keyInstanceID.String(o.of.instanceID)},
	}
	switch a := a.(type) {
	case *entity.Signal:
		a.Trace = encode(span)
		p.name = entitySpanName(a.Target, a.Operation)
		p.attrs = scheduled(append(p.attrs, keyOperation.String(signalEntity), keyEventTarget.String(a.Target.String())), a.Due)
	case *entity.Start:
		a.Trace = encode(span)
		p.name = spanName(o.op.Entity.Name, "create_orchestration", "")
		p.attrs = scheduled(append(p.attrs, keyEventTarget.String(a.InstanceID)), a.Due)
	}
	o.of.spans = append(o.of.spans, p)
}
