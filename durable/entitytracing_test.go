package durable_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

type tracedMeter int

func (m *tracedMeter) Add(ctx *durable.EntityContext, n int) (int, error) {
	if n < 0 {
		durable.SignalFrom(ctx, durable.EntityKey[tracedMeter]("never"), (*tracedMeter).Add, 1)
		return 0, errors.New("too little")
	}
	*m += tracedMeter(n)
	return int(*m), nil
}

func (m *tracedMeter) Tell(ctx *durable.EntityContext, n int) (durable.Void, error) {
	durable.SignalFrom(ctx, durable.EntityKey[tracedMeter]("other"), (*tracedMeter).Add, n)
	_, err := durable.StartFrom(ctx, tracedReader, durable.Void{}, durable.InstanceID("reader"))
	return durable.Void{}, err
}

func tracedReader(ctx *durable.Context, _ durable.Void) (int, error) { return 1, nil }

func tracedCaller(ctx *durable.Context, _ durable.Void) (int, error) {
	key := durable.EntityKey[tracedMeter]("a")
	durable.SignalFrom(ctx, key, (*tracedMeter).Add, 5, durable.SignalAfter(time.Minute))
	ctx.Sleep(time.Hour)
	unlock := durable.LockEntities(ctx, key)
	defer unlock()
	if _, err := durable.CallEntity(ctx, key, (*tracedMeter).Add, -1).Await(); err == nil {
		return 0, errors.New("the operation did not fail")
	}
	return durable.CallEntity(ctx, key, (*tracedMeter).Add, 2).Await()
}

func tracedEntities() *durable.Registry {
	return durable.NewRegistry(
		durable.Entity("Meter", durable.Op("add", (*tracedMeter).Add), durable.Op("tell", (*tracedMeter).Tell)),
		durable.Orchestrator("Caller", tracedCaller), durable.Orchestrator("Reader", tracedReader))
}

// DurableTask.Core/Tracing/TraceHelper.cs creates the same names, kinds and parents
// (StartActivityForCallingOrSignalingEntity and others).
func TestTracing_CoversEntityCallsOfOrchestrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := tracetest.NewInMemoryExporter()
		p := trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(durable.SpanIDs{}))
		h, r := memhub.New(), tracedEntities()
		defer run(t, h, r, durable.Config{Tracing: durable.Tracing{Provider: p}})()
		i, err := durable.Start(t.Context(), durable.NewClient(h, r, durable.Tracing{Provider: p}), tracedCaller, durable.Void{}, durable.InstanceID("caller"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := i.Wait(t.Context()); n != 7 || err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		const create, caller = "producer create_orchestration:Caller", "server orchestration:Caller"
		want := []string{
			"- > " + create + " 0s",
			create + " > " + caller + " 1h0m0s",
			caller + " > internal orchestration:Caller:timer 1h0m0s",
			caller + " > producer entity:meter:add 1m0s",
			"producer entity:meter:add > consumer entity:meter:add 0s",
			caller + " > client entity:meter:add 0s",
			caller + " > client entity:meter:add 0s",
			"client entity:meter:add > server entity:meter:add 0s failed: too little",
			"client entity:meter:add > server entity:meter:add 0s",
		}
		slices.Sort(want)
		if got := lines(written.GetSpans()); !slices.Equal(got, want) {
			t.Errorf("spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		attributes := map[string]string{
			"client":   "event.target_instance_id=@meter@a task.operation=call_entity type=entity",
			"producer": "event.target_instance_id=@meter@a task.operation=signal_entity task.scheduled_time=01/01/2000 00:01:00 type=entity",
			"consumer": "task.instance_id=@meter@a task.operation=signal_entity type=entity",
			"server":   "task.instance_id=@meter@a task.operation=call_entity type=entity",
		}
		for _, s := range written.GetSpans() {
			want, ok := attributes[s.SpanKind.String()]
			if s.Name != "entity:meter:add" || !ok {
				continue
			}
			if s.Status.Description != "" {
				want = "entity.error_message=too little " + want
			}
			if got := attributesOf(s); got != want {
				t.Errorf("%s span of %s has attributes %s, want %s", s.SpanKind, s.Name, got, want)
			}
		}
	})
}

func TestTracing_CoversAClientsSignalAndItsEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := tracetest.NewInMemoryExporter()
		p := trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(durable.SpanIDs{}))
		h, r := memhub.New(), tracedEntities()
		defer run(t, h, r, durable.Config{Tracing: durable.Tracing{Provider: p}})()
		c := durable.NewClient(h, r, durable.Tracing{Provider: p})
		key := durable.EntityKey[tracedMeter]("a")
		if err := durable.Signal(t.Context(), c, key, (*tracedMeter).Add, 1); err != nil { // belongs to no trace
			t.Fatal(err)
		}
		ctx, span := p.Tracer("test").Start(t.Context(), "request")
		if err := durable.Signal(ctx, c, key, (*tracedMeter).Tell, 3); err != nil {
			t.Fatal(err)
		}
		span.End()
		time.Sleep(time.Minute)
		const tell = "consumer entity:meter:tell"
		want := []string{
			"- > internal request 0s",
			"internal request > producer entity:meter:tell 0s",
			"producer entity:meter:tell > " + tell + " 0s",
			tell + " > producer entity:meter:add 0s",
			"producer entity:meter:add > consumer entity:meter:add 0s",
			tell + " > producer meter:create_orchestration 0s",
			"producer meter:create_orchestration > server orchestration:Reader 0s",
		}
		slices.Sort(want)
		if got := lines(written.GetSpans()); !slices.Equal(got, want) {
			t.Errorf("spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if s, err := durable.ReadEntity(t.Context(), c, durable.EntityKey[tracedMeter]("other")); s != 3 || err != nil {
			t.Errorf("entity other has state %d, %v; want 3", s, err)
		}
	})
}
