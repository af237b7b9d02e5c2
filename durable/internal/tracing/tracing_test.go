package tracing

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
)

const parentText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

func recorder() (*Tracer, *tracetest.InMemoryExporter) {
	written := tracetest.NewInMemoryExporter()
	return New(trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(SpanIDs{}))), written
}

func start(c *history.TraceContext) *history.ExecutionStarted {
	return &history.ExecutionStarted{
		Header: history.NewHeader(noon), Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}, Name: "Orchestrator", ParentTraceContext: c,
	}
}

func TestContext_IsDecodedAsItWasEncoded(t *testing.T) {
	for _, want := range []history.TraceContext{
		{TraceParent: parentText},
		{TraceParent: parentText[:53] + "00"},
		{TraceParent: parentText, TraceState: new("vendor=value,other=1")},
	} {
		got := encode(decode(&want))
		if got.TraceParent != want.TraceParent || (got.TraceState == nil) != (want.TraceState == nil) || got.TraceState != nil && *got.TraceState != *want.TraceState {
			t.Errorf("got %+v, want %+v", *got, want)
		}
	}
}

func TestContext_AnInvalidOneIsNotTraced(t *testing.T) {
	for _, text := range []string{"", "x", "00-0-0-0", strings.Repeat("0", 55), "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		if decode(&history.TraceContext{TraceParent: text}).IsValid() {
			t.Errorf("%q was decoded as a context", text)
		}
	}
	if encode(api.SpanContext{}) != nil || decode(nil).IsValid() {
		t.Error("nil was decoded as a context")
	}
}

// DurableTask.Core/Tracing/DistributedTraceContext.cs, TraceState.
func TestContext_DropsALongTraceState(t *testing.T) {
	state := "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 250) + ",c=" + strings.Repeat("x", 100)
	if c := encode(decode(&history.TraceContext{TraceParent: parentText, TraceState: &state})); c.TraceState != nil {
		t.Errorf("kept a trace state of %d characters", len(*c.TraceState))
	}
}

// Another worker, possibly in .NET, has run the first episode.
func TestInstance_KeepsTheSpanOfTheFirstEpisode(t *testing.T) {
	tracer, written := recorder()
	i := tracer.Instance([]history.Event{start(&history.TraceContext{
		TraceParent: parentText, ID: new("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"), SpanID: new("00f067aa0ba902b7"),
		ActivityStartTime: new("2026-11-20T11:00:00.1234567+00:00"),
	})})
	cp := &provider.Checkpoint{NewEvents: []history.Event{&history.ExecutionCompleted{Header: history.NewHeader(noon), Status: history.Completed}}}
	i.Stamp(cp, noon)
	i.Committed(cp, noon)
	spans := written.GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans were written, want 1", len(spans))
	}
	s := spans[0]
	if s.SpanContext.SpanID().String() != "00f067aa0ba902b7" || s.Parent.SpanID().String() != "b7ad6b7169203331" ||
		!s.StartTime.Equal(time.Date(2026, time.November, 20, 11, 0, 0, 123456700, time.UTC)) || !s.EndTime.Equal(noon) {
		t.Errorf("the span is %s below %s, from %v to %v", s.SpanContext.SpanID(), s.Parent.SpanID(), s.StartTime, s.EndTime)
	}
}

func TestInstance_StoresItsSpanInTheHistory(t *testing.T) {
	tracer, written := recorder()
	given := &history.TraceContext{TraceParent: parentText}
	first := start(given)
	cp := &provider.Checkpoint{NewEvents: []history.Event{first}}
	tracer.Instance(nil).Stamp(cp, noon)
	kept := cp.NewEvents[0].(*history.ExecutionStarted).ParentTraceContext
	if kept.ID == nil || kept.SpanID == nil || *kept.ActivityStartTime != "2026-11-20T12:00:00+00:00" {
		t.Fatalf("the history contains %+v", *kept)
	}
	if given.ID != nil || first.ParentTraceContext != given {
		t.Error("the message was changed, although it may be redelivered")
	}
	if n := len(written.GetSpans()); n != 0 {
		t.Errorf("%d spans were written before anything ended", n)
	}
}

func TestInstance_IsNotTracedWithoutAParent(t *testing.T) {
	tracer, written := recorder()
	i := tracer.Instance(nil)
	cp := &provider.Checkpoint{
		NewEvents: []history.Event{
			start(nil), &history.TaskScheduled{Header: history.Header{EventID: 0}, Name: "A"},
			&history.TaskCompleted{TaskScheduledID: 0}, &history.ExecutionCompleted{Status: history.Completed},
		},
		Messages: []provider.TaskMessage{{Event: &history.EventRaised{Name: "E"}, Target: history.OrchestrationInstance{InstanceID: "b"}}},
	}
	i.Stamp(cp, noon)
	i.Committed(cp, noon)
	ctx, done := tracer.RunActivity(t.Context(), cp.NewEvents[1].(*history.TaskScheduled), history.OrchestrationInstance{})
	done(nil)
	if len(written.GetSpans()) != 0 || ctx != t.Context() || cp.NewEvents[1].(*history.TaskScheduled).ParentTraceContext != nil {
		t.Error("an orchestration without a parent was traced")
	}
}

func TestSpanIDs_AreValidAndUseTheChosenID(t *testing.T) {
	var g SpanIDs
	trc, id := g.NewIDs(context.Background())
	if !trc.IsValid() || !id.IsValid() {
		t.Errorf("IDs are %v and %v", trc, id)
	}
	want := newSpanID()
	if got := g.NewSpanID(withSpanID(context.Background(), want), trc); got != want {
		t.Errorf("the ID is %v, want the chosen %v", got, want)
	}
	if a, b := g.NewSpanID(context.Background(), trc), g.NewSpanID(context.Background(), trc); a == b {
		t.Errorf("two spans have the ID %v", a)
	}
}

func TestTracer_NilDoesNothing(t *testing.T) {
	tracer := New(nil)
	e := start(nil)
	ctx, done := tracer.StartOrchestration(t.Context(), e)
	done(nil)
	if ctx != t.Context() || e.ParentTraceContext != nil {
		t.Error("a nil Tracer did something")
	}
	cp := &provider.Checkpoint{NewEvents: []history.Event{e}}
	i := tracer.Instance(cp.NewEvents)
	if n := testing.AllocsPerRun(100, func() { i.Stamp(cp, noon); i.Committed(cp, noon) }); n != 0 {
		t.Errorf("a nil Tracer allocates %v times", n)
	}
}
