package durabletest

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Stub has the hub run stub in the place of an activity, which must be
// registered. It may be called again, also while instances are under way.
//
// A stub runs on the goroutine of the test, so that it may end the test by
// t.Fatal, and one at a time, so that it may share variables with it. A panic
// fails the activity, as in a worker, and its stack is logged.
func Stub[I, O any](h *Hub, activity, stub func(context.Context, I) (O, error)) {
	h.t.Helper()
	h.registry = h.registry.Replace(durable.Activity(h.lookup(activity).Name(), stub))
}

// StubName is [Stub] for an activity that is called by name, registered or not.
//
// It also answers the requests of [durable.CallHTTP], which a hub does not send:
//
//	durabletest.StubName(hub, durable.HTTPActivityName, func(_ context.Context, r durable.HTTPRequest) (durable.HTTPResponse, error) {
//		return durable.HTTPResponse{StatusCode: 200, Content: "hello"}, nil
//	})
func StubName[I, O any](h *Hub, activity durable.ActivityName[I, O], stub func(context.Context, I) (O, error)) {
	h.answers = h.answers || isHTTP(string(activity))
	h.registry = h.registry.Replace(durable.Activity(string(activity), stub))
}

// isHTTP reports whether an activity is the one that sends requests for
// [durable.CallHTTP].
func isHTTP(name string) bool { return strings.EqualFold(name, string(durable.HTTPActivityName)) }

// StubOrchestrator has the hub run stub in the place of an orchestrator, which
// must be registered: to test a parent without its children. The stub is an
// orchestrator itself, and is run again from the start as such.
func StubOrchestrator[I, O any](h *Hub, orchestrator, stub func(*durable.Context, I) (O, error)) {
	h.t.Helper()
	f := h.lookup(orchestrator)
	h.registry = h.registry.Replace(durable.Orchestrator(f.Name(), stub, f.Version()))
}
