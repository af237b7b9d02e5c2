package durabletest

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

// Stub replaces a registered activity with stub. It may be called again, also while instances are running.
//
// Stubs run on the test's goroutine, one at a time. A stub may therefore call t.Fatal and share variables
// with the test. A panic fails the activity, as in a worker, and its stack is logged.
func Stub[I, O any](h *Hub, activity, stub func(context.Context, I) (O, error)) {
	h.t.Helper()
	h.registry = h.registry.Replace(durable.Activity(h.lookup(activity).Name(), stub))
}

// StubName is [Stub] for an activity that is called by name, registered or not.
//
// It can also answer the requests of [durable.CallHTTP]; the hub sends no HTTP requests:
//
//	durabletest.StubName(hub, durable.HTTPActivityName, func(_ context.Context, r durable.HTTPRequest) (durable.HTTPResponse, error) {
//		return durable.HTTPResponse{StatusCode: 200, Content: "hello"}, nil
//	})
func StubName[I, O any](h *Hub, activity durable.ActivityName[I, O], stub func(context.Context, I) (O, error)) {
	h.stubsHTTP = h.stubsHTTP || isHTTP(string(activity))
	h.registry = h.registry.Replace(durable.Activity(string(activity), stub))
}

// StubStep replaces the function of all steps with the given name by stub. Stubs, and the functions
// of other steps, run on the test's goroutine.
func StubStep[T any](h *Hub, name string, stub func(context.Context) (T, error)) {
	h.t.Helper()
	activity := durable.Activity(name, func(ctx context.Context, _ durable.Void) (T, error) { return stub(ctx) })
	run, _ := dispatch.FunctionsOf(h.registry.Replace(activity)).Activity(name)
	h.stepStubs[name] = func(ctx context.Context) (*string, error) { return run(ctx, nil) }
}

// isHTTP reports whether name is the activity behind [durable.CallHTTP].
func isHTTP(name string) bool { return strings.EqualFold(name, string(durable.HTTPActivityName)) }

// StubOrchestrator replaces a registered orchestrator with stub, for example to test a parent without its
// children. The stub is an orchestrator itself, and the hub checks its replay too.
func StubOrchestrator[I, O any](h *Hub, orchestrator, stub func(*durable.Context, I) (O, error)) {
	h.t.Helper()
	f := h.lookup(orchestrator)
	h.registry = h.registry.Replace(durable.Orchestrator(f.Name(), stub, f.Version()))
}
