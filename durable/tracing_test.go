package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	apitrace "go.opentelemetry.io/otel/trace"
)

func tracedStep(ctx context.Context, fails bool) (string, error) {
	if fails {
		return "", errors.New("it broke")
	}
	return apitrace.SpanContextFromContext(ctx).TraceID().String(), nil
}

func tracedChild(ctx *durable.Context, n int) (string, error) {
	if n > 0 {
		return durable.ContinueAsNew(ctx, tracedChild, n-1)
	}
	return durable.CallActivity(ctx, tracedStep, false).Await()
}

const traced = durable.Event[string]("Traced")

func tracedParent(ctx *durable.Context, listener string) (string, error) {
	id, err := durable.CallActivity(ctx, tracedStep, false).Await()
	if err != nil {
		return "", err
	}
	if _, err := durable.CallActivity(ctx, tracedStep, true).Await(); err == nil {
		return "", errors.New("the step did not fail")
	}
	ctx.Sleep(time.Hour)
	if _, err := durable.CallSubOrchestrator(ctx, tracedChild, 1, durable.InstanceID("child")).Await(); err != nil {
		return "", err
	}
	return id, traced.RaiseFrom(ctx, durable.InstanceID(listener), "x")
}

func tracedListener(ctx *durable.Context, _ durable.Void) (string, error) {
	return traced.Wait(ctx).Await()
}

func tracedFunctions() *durable.Registry {
	return durable.NewRegistry(
		durable.Orchestrator("Parent", tracedParent, durable.Version("1.0")),
		durable.Orchestrator("Child", tracedChild),
		durable.Orchestrator("Listener", tracedListener),
		durable.Activity("Step", tracedStep))
}

// lines formats each span as a line: its parent, kind, name, duration and failure.
func lines(spans tracetest.SpanStubs) []string {
	names := map[apitrace.SpanID]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID()] = s.SpanKind.String() + " " + s.Name
	}
	var out []string
	for _, s := range spans {
		parent := names[s.Parent.SpanID()]
		if parent == "" {
			parent = "-"
		}
		line := fmt.Sprintf("%s > %s %s %v", parent, s.SpanKind, s.Name, s.EndTime.Sub(s.StartTime).Round(time.Second))
		if s.Status.Code == codes.Error {
			line += " failed: " + s.Status.Description
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func attributesOf(s tracetest.SpanStub) string {
	var out []string
	for _, a := range s.Attributes {
		if a.Key != attribute.Key("durabletask.task.execution_id") {
			out = append(out, strings.TrimPrefix(string(a.Key), "durabletask.")+"="+a.Value.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Names, kinds and parents follow DurableTask.Core/Tracing/TraceHelper.cs.
func TestTracing_CreatesOneTreePerStart(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprintf("sessions %v", sessions), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { traceTree(t, sessions) }) })
	}
}

func traceTree(t *testing.T, sessions bool) {
	written := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(durable.SpanIDs{}))
	h, r := memhub.New(), tracedFunctions()
	defer run(t, h, r, durable.Config{Tracing: durable.Tracing{Provider: p}, ExtendedSessionIdle: sessionIdle(sessions)})()
	c := durable.NewClient(h, r, durable.Tracing{Provider: p})
	listener, err := durable.NewClient(h, r).StartByName(t.Context(), "Listener", nil) // not traced
	if err != nil {
		t.Fatal(err)
	}
	i, err := durable.Start(t.Context(), c, tracedParent, string(listener), durable.InstanceID("parent"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := i.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	spans := written.GetSpans()
	const create, parent, child = "producer create_orchestration:Parent@(1.0)", "server orchestration:Parent@(1.0)", "server orchestration:Child"
	want := []string{
		"- > " + create + " 0s",
		create + " > " + parent + " 1h0m0s",
		parent + " > client activity:Step@(1.0) 0s",
		parent + " > client activity:Step@(1.0) 0s failed: it broke",
		"client activity:Step@(1.0) > server activity:Step@(1.0) 0s",
		"client activity:Step@(1.0) > server activity:Step@(1.0) 0s failed: it broke",
		parent + " > internal orchestration:Parent:timer 1h0m0s",
		parent + " > client orchestration:Child 0s",
		"client orchestration:Child > " + child + " 0s", // the last generation; a generation that only continues as new has no duration
		child + " > client activity:Step 0s",
		"client activity:Step > server activity:Step 0s",
		parent + " > producer orchestration_event:Traced 0s",
	}
	slices.Sort(want)
	if got := lines(spans); !slices.Equal(got, want) {
		t.Errorf("spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range spans {
		if s.SpanContext.TraceID().String() != id {
			t.Errorf("%s is not in the trace of the activity", s.Name)
		}
	}
	attributes := map[string]string{
		"create_orchestration:Parent@(1.0)": "task.instance_id=parent task.name=Parent task.version=1.0 type=orchestration",
		"orchestration:Parent@(1.0)":        "task.instance_id=parent task.name=Parent task.status=Completed task.version=1.0 type=orchestration",
		"orchestration_event:Traced":        "event.target_instance_id=" + string(listener) + " task.instance_id=parent task.name=Traced type=event",
	}
	for _, s := range spans {
		if want, ok := attributes[s.Name]; ok && attributesOf(s) != want {
			t.Errorf("%s has attributes %s, want %s", s.Name, attributesOf(s), want)
		}
	}
}

func TestTracing_ClientSpanIsTheParentOfAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := tracetest.NewInMemoryExporter()
		p := trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(durable.SpanIDs{}))
		h, r := memhub.New(), tracedFunctions()
		defer run(t, h, r, durable.Config{Tracing: durable.Tracing{Provider: p}})()
		c := durable.NewClient(h, r, durable.Tracing{Provider: p})
		ctx, caller := p.Tracer("test").Start(t.Context(), "caller")
		i, err := durable.Start(ctx, c, tracedListener, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if err := traced.Raise(ctx, c, i.ID, "x"); err != nil {
			t.Fatal(err)
		}
		if err := traced.Raise(ctx, c, "nobody", "x"); !errors.Is(err, durable.ErrInstanceNotFound) {
			t.Fatal(err)
		}
		caller.End()
		if _, err := i.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := lines(written.GetSpans())
		want := []string{
			"- > internal caller 0s",
			"internal caller > producer create_orchestration:Listener 0s",
			"internal caller > producer orchestration_event:Traced 0s",
			"producer create_orchestration:Listener > server orchestration:Listener 0s",
		}
		if len(got) != 5 || !slices.Equal(got[:3], want[:3]) || got[4] != want[3] ||
			!strings.HasPrefix(got[3], want[2]+" failed: ") {
			t.Errorf("spans are\n%s", strings.Join(got, "\n"))
		}
	})
}

func TestTracing_IsOffWithoutAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := memhub.New(), tracedFunctions()
		defer run(t, h, r, durable.Config{})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r), tracedListener, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if err := traced.Raise(t.Context(), durable.NewClient(h, r), i.ID, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := i.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, err := h.History(t.Context(), string(i.ID))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			var c *history.TraceContext
			switch e := e.(type) {
			case *history.ExecutionStarted:
				c = e.ParentTraceContext
			case *history.EventRaised:
				c = e.ParentTraceContext
			}
			if c != nil {
				t.Errorf("%T has the trace context %+v", e, *c)
			}
		}
	})
}
