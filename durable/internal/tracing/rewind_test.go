package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
)

var silent = slog.New(slog.DiscardHandler)

// bridge is a set of functions whose activity fails until the bridge is mended.
type bridge struct{ mended atomic.Bool }

func (b *bridge) cross(context.Context, durable.Void) (string, error) {
	if !b.mended.Load() {
		return "", errors.New("it broke")
	}
	return "across", nil
}

func (b *bridge) walk(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallActivity(ctx, b.cross, durable.Void{}).Await()
}

func (b *bridge) travel(ctx *durable.Context, _ durable.Void) (string, error) {
	return durable.CallSubOrchestrator(ctx, b.walk, durable.Void{}, durable.InstanceID("walk")).Await()
}

// A rewound instance keeps its span, and so does its parent orchestration.
// DurableTask.AzureStorage keeps the ExecutionStarted of the failed run, which has the span's
// ID, and wakes the instance with a GenericEvent (AzureTableTrackingStore.cs,
// RewindHistoryAsync; AzureStorageOrchestrationService.cs, RewindTaskOrchestrationAsync). A new
// span for the new run exists only with ExecutionRewound, which other stores of .NET send
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync). Tasks that are
// scheduled again get new spans.
func TestInstance_KeepsItsSpanWhenItIsRewound(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (provider.Provider, func()){
		"azurestorage": openSimulated,
		"embedded":     openFile,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { rewindTraced(t, open) })
		})
	}
}

func rewindTraced(t *testing.T, open func(t *testing.T) (provider.Provider, func())) {
	b, written := new(bridge), tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(durable.SpanIDs{}))
	r := durable.NewRegistry(durable.Orchestrator("Travel", b.travel), durable.Orchestrator("Walk", b.walk), durable.Activity("Cross", b.cross))
	hub, done := open(t)
	defer done()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- durable.NewWorker(hub, r, durable.Config{Logger: silent, Tracing: durable.Tracing{Provider: p}}).Run(ctx)
	}()
	c := durable.NewClient(hub, r, durable.Tracing{Provider: p})
	time.Sleep(time.Minute)
	i, err := durable.Start(t.Context(), c, b.travel, durable.Void{}, durable.InstanceID("travel"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Wait(t.Context()); err == nil {
		t.Fatal("the instance did not fail")
	}
	b.mended.Store(true)
	time.Sleep(time.Hour)
	if err := i.Rewind(t.Context(), "it was mended"); err != nil {
		t.Fatal(err)
	}
	waitUntilCompleted(t, c, i.ID)
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}

	const create, travel, walk, cross = "create_orchestration:Travel", "server orchestration:Travel", "server orchestration:Walk", "activity:Cross"
	want := []string{
		"- > producer " + create + " 1",
		"producer " + create + " > " + travel + " failed 1", "producer " + create + " > " + travel + " 1",
		travel + " > client orchestration:Walk failed 1", travel + " > client orchestration:Walk 1",
		"client orchestration:Walk > " + walk + " failed 1", "client orchestration:Walk > " + walk + " 1",
		walk + " > client " + cross + " failed 1", walk + " > client " + cross + " 2",
		"client " + cross + " > server " + cross + " failed 1", "client " + cross + " > server " + cross + " 2",
	}
	slices.Sort(want)
	if got := numbered(written.GetSpans()); !slices.Equal(got, want) {
		t.Errorf("spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func waitUntilCompleted(t *testing.T, c *durable.Client, id durable.InstanceID) {
	t.Helper()
	for range 1000 {
		s, err := c.Status(t.Context(), id, durable.Fetch{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Status == history.Completed {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatal("the instance did not complete after the rewind")
}

// numbered returns the spans as lines. Each line has the parent, the kind, the name and whether
// the span failed. Its last number counts the span IDs with the same kind and name.
func numbered(spans tracetest.SpanStubs) []string {
	names, numbers, ids := map[api.SpanID]string{}, map[api.SpanID]int{}, map[string]int{}
	for _, s := range spans {
		name := s.SpanKind.String() + " " + s.Name
		if id := s.SpanContext.SpanID(); numbers[id] == 0 {
			ids[name]++
			names[id], numbers[id] = name, ids[name]
		}
	}
	var out []string
	for _, s := range spans {
		parent, failed := names[s.Parent.SpanID()], ""
		if parent == "" {
			parent = "-"
		}
		if s.Status.Description != "" {
			failed = " failed"
		}
		id := s.SpanContext.SpanID()
		out = append(out, fmt.Sprintf("%s > %s%s %d", parent, names[id], failed, numbers[id]))
	}
	slices.Sort(out)
	return out
}

func openSimulated(t *testing.T) (provider.Provider, func()) {
	account := azsim.New(azsim.Config{Seed: 1})
	c, err := azurestorage.ParseConnectionString(account.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Rewind", PartitionCount: 1, WorkerID: "w", MaxConcurrentActivities: 1, Transport: account.Worker("w"), Logger: silent,
	})
	if err != nil {
		t.Fatal(err)
	}
	return hub, account.Wait
}

func openFile(t *testing.T) (provider.Provider, func()) {
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	return hub, func() { _ = hub.Close() }
}
