package tracing

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"go.opentelemetry.io/otel/trace"
)

// Instance writes the spans of an instance that a worker runs. A nil Instance does nothing.
type Instance struct {
	tracer   *Tracer
	start    *history.ExecutionStarted
	rootSpan *rootSpan             // nil if the orchestration is not traced
	stamped  *rootSpan             // of the last checkpoint that was stamped
	open     map[int]history.Event // scheduled and not completed, by event ID
}

// learn processes events of the history.
func (i *Instance) learn(events []history.Event, now time.Time) {
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			i.start, i.open = e, map[int]history.Event{}
			i.rootSpan, _ = startRootSpan(e.ParentTraceContext, now)
		case *history.TaskScheduled, *history.TimerCreated, *history.SubOrchestrationInstanceCreated:
			if i.rootSpan != nil {
				i.open[e.Head().EventID] = e
			}
		default:
			if id, ok := history.Completes(e); ok {
				delete(i.open, id)
			}
		}
	}
}

// Stamp adds the spans that start with a checkpoint to its events and messages. Call it before
// the commit. It replaces the events that it changes.
func (i *Instance) Stamp(cp *provider.Checkpoint, now time.Time) {
	if i == nil {
		return
	}
	start, b := i.start, i.rootSpan
	for n, e := range cp.NewEvents {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			if cp.ContinuedAsNew && e.ParentTraceContext == nil && start != nil && !e.GenerateNewTrace {
				e = new(*e)
				e.ParentTraceContext = lineage(start.ParentTraceContext)
				cp.NewEvents[n] = e
			}
			var kept *history.TraceContext
			if b, kept = startRootSpan(e.ParentTraceContext, now); kept != e.ParentTraceContext {
				e = new(*e)
				e.ParentTraceContext = kept
				cp.NewEvents[n] = e
			}
			start = e
		case *history.TaskScheduled:
			if b != nil {
				cp.NewEvents[n] = stampTask(cp, e, b)
			}
		case *history.SubOrchestrationInstanceCreated:
			if b != nil {
				cp.NewEvents[n] = stampChild(cp, e, b)
			}
		}
	}
	i.stamped = b
	if b != nil {
		i.stampEvents(cp, start, b, now)
		stampRequests(cp, b, now)
	}
}

// lineage returns the trace context of the next generation, which keeps the parent and gets a
// span of its own (DurableTask.Core/TaskOrchestrationDispatcher.cs, where it copies the trace
// context to preserve lineage).
func lineage(t *history.TraceContext) *history.TraceContext {
	if t == nil {
		return nil
	}
	return &history.TraceContext{TraceParent: t.TraceParent, TraceState: t.TraceState}
}

// StampStep gives a step that starts its parent, before the checkpoint that records the step. Call it
// after the checkpoint that decided the step was stamped.
func (i *Instance) StampStep(e *history.TaskScheduled) {
	if i != nil && i.stamped != nil {
		e.ParentTraceContext = encode(i.stamped.span.WithSpanID(newSpanID()))
	}
}

// stampTask gives an activity its parent: a span from here to its completion. A recorded step has its
// parent.
func stampTask(cp *provider.Checkpoint, e *history.TaskScheduled, b *rootSpan) history.Event {
	if e.ParentTraceContext != nil {
		return e
	}
	c := encode(b.span.WithSpanID(newSpanID()))
	for n, m := range cp.Activities {
		if sent, ok := m.Event.(*history.TaskScheduled); ok && sent.EventID == e.EventID {
			sent = new(*sent)
			sent.ParentTraceContext = c
			cp.Activities[n].Event = sent
		}
	}
	e = new(*e)
	e.ParentTraceContext = c
	return e
}

func stampChild(cp *provider.Checkpoint, e *history.SubOrchestrationInstanceCreated, b *rootSpan) history.Event {
	id := newSpanID()
	for n, m := range cp.Messages {
		start, ok := m.Event.(*history.ExecutionStarted)
		if ok && start.Parent != nil && start.Parent.TaskScheduleID == e.EventID {
			start = new(*start)
			start.ParentTraceContext = encode(b.span.WithSpanID(id))
			cp.Messages[n].Event = start
		}
	}
	e = new(*e)
	e.ClientSpanID = new(id.String())
	return e
}

// stampEvents writes a span for each event that is sent to an orchestration and makes the span
// the event's parent. Messages to entities are requests and get no span here.
func (i *Instance) stampEvents(cp *provider.Checkpoint, start *history.ExecutionStarted, b *rootSpan, now time.Time) {
	for n, m := range cp.Messages {
		raised, ok := m.Event.(*history.EventRaised)
		if !ok || isEntity(m.Target.InstanceID) || isEntity(start.Instance.InstanceID) {
			continue
		}
		id := newSpanID()
		raised = new(*raised)
		raised.ParentTraceContext = encode(b.span.WithSpanID(id))
		cp.Messages[n].Event = raised
		attrs := functionAttributes("event", raised.Name, "", start.Instance.InstanceID)
		i.tracer.write(endedSpan{
			id: id, parent: b.span, name: spanName("orchestration_event", raised.Name, ""), kind: trace.SpanKindProducer, from: now, to: now,
			attrs: append(attrs, keyExecutionID.String(start.Instance.ExecutionID), keyEventTarget.String(m.Target.InstanceID)),
		})
	}
}

func isEntity(id string) bool { return id != "" && id[0] == '@' }

// Committed writes the spans that ended with a checkpoint that was stamped and committed.
func (i *Instance) Committed(cp *provider.Checkpoint, now time.Time) {
	if i == nil {
		return
	}
	if cp.ContinuedAsNew && i.rootSpan != nil {
		i.writeExecutionSpan(history.ContinuedAsNew, nil, now)
	}
	for n, e := range cp.NewEvents {
		if id, ok := history.Completes(e); ok && i.rootSpan != nil {
			i.writeTaskSpan(i.open[id], e, now)
		}
		i.learn(cp.NewEvents[n:n+1], now)
		if end, ok := e.(*history.ExecutionCompleted); ok && i.rootSpan != nil {
			i.writeExecutionSpan(end.Status, end.Failure, now)
		}
	}
}

// writeExecutionSpan writes the span of an execution that has ended.
func (i *Instance) writeExecutionSpan(status history.RuntimeStatus, f *history.FailureDetails, now time.Time) {
	attrs := functionAttributes("orchestration", i.start.Name, i.start.Version, i.start.Instance.InstanceID)
	p := endedSpan{
		id: i.rootSpan.span.SpanID(), parent: i.rootSpan.parent, name: spanName("orchestration", i.start.Name, i.start.Version),
		kind: trace.SpanKindServer, from: i.rootSpan.at, to: now, attrs: append(attrs, keyStatus.String(status.String())),
	}
	switch {
	case f != nil:
		p.failure = &f.ErrorMessage
	case status == history.Failed:
		p.failure = new("the orchestration failed")
	}
	i.tracer.write(p)
	i.rootSpan = nil
}

// writeTaskSpan writes the span of a completed task.
func (i *Instance) writeTaskSpan(scheduled, back history.Event, now time.Time) {
	p := endedSpan{parent: i.rootSpan.span, kind: trace.SpanKindClient, to: now, failure: failureOf(back)}
	instanceID := i.start.Instance.InstanceID
	switch e := scheduled.(type) {
	case *history.TaskScheduled:
		p.id = decode(e.ParentTraceContext).SpanID()
		p.name = spanName("activity", e.Name, e.Version)
		p.attrs = append(functionAttributes("activity", e.Name, e.Version, instanceID), keyTaskID.Int(e.EventID))
	case *history.SubOrchestrationInstanceCreated:
		if e.ClientSpanID != nil {
			p.id, _ = trace.SpanIDFromHex(*e.ClientSpanID) // if invalid, the span gets a random ID
		}
		p.name = spanName("orchestration", e.Name, e.Version)
		p.attrs = functionAttributes("orchestration", e.Name, e.Version, instanceID)
	case *history.TimerCreated:
		p.name = "orchestration:" + i.start.Name + ":timer"
		p.kind = trace.SpanKindInternal
		p.attrs = slices.Concat(functionAttributes("timer", i.start.Name, "", instanceID), timerAttributes(e))
	default:
		return // its start is unknown
	}
	p.from = scheduled.Head().Timestamp
	i.tracer.write(p)
}
