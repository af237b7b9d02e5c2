package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

func describe(actions []replay.Action) string { return replaytest.Describe(actions) }

type mailer struct{ host string }

func (m *mailer) send(_ context.Context, to string) (string, error) { return m.host + " to " + to, nil }

type clock struct{ zone string }

func (c clock) read(context.Context, durable.Void) (string, error) { return c.zone, nil }

type sender interface {
	send(ctx context.Context, to string) (string, error)
}

func generic[T any](_ context.Context, v T) (string, error) { return fmt.Sprint(v), nil }

func other(context.Context, string) (string, error)     { return "", nil }
func orchA(*durable.Context, string) (string, error)    { return "", nil }
func orchB(ctx *durable.Context, s string) (int, error) { return 0, nil }

// makeActivity returns closures of one function literal.
//
//go:noinline
func makeActivity(prefix string) func(context.Context, string) (string, error) {
	return func(_ context.Context, s string) (string, error) { return prefix + s, nil }
}

func TestRegistry_FindsFunctionsByCaseInsensitiveName(t *testing.T) {
	t.Parallel()
	r := authors(durable.Orchestrator("Bestellung_Prüfen", orchA))
	if _, ok := durable.EngineOf(r).Activity("sayHELLO"); !ok {
		t.Error("sayHELLO is not found")
	}
	if _, ok := durable.EngineOf(r).Orchestrator("bestellung_prüfen", ""); !ok {
		t.Error("bestellung_prüfen is not found")
	}
	if _, ok := durable.EngineOf(r).Orchestrator("SayHello", ""); ok {
		t.Error("an activity is found as an orchestrator")
	}
	if _, ok := durable.EngineOf(r).Activity("nobody"); ok {
		t.Error("an unregistered activity is found")
	}
}

func TestRegistry_AnOrchestratorAndAnActivityMayShareAName(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry(durable.Activity("X", other), durable.Orchestrator("X", orchA))
	if _, ok := durable.EngineOf(r).Activity("X"); !ok {
		t.Error("the activity is not found")
	}
	if _, ok := durable.EngineOf(r).Orchestrator("X", ""); !ok {
		t.Error("the orchestrator is not found")
	}
}

func TestRegistry_PanicsOnInvalidRegistrations(t *testing.T) {
	t.Parallel()
	const here = "github.com/durablefunctions-go/durablefunctions/durable_test."
	for _, c := range []struct {
		name string
		f    func()
		want string
	}{
		{
			"duplicate name", func() { durable.NewRegistry(durable.Activity("X", other), durable.Activity("X", sayHello)) },
			`durable: activity names "X" and "X", of ` + here + "other and " + here + "sayHello, are the same; case is ignored",
		},
		{
			"names that differ in case", func() { durable.NewRegistry(durable.Orchestrator("x", orchA), durable.Orchestrator("X", orchB)) },
			`durable: orchestrator names "x" and "X", of `,
		},
		{
			"one function under two names", func() { durable.NewRegistry(durable.Activity("X", other), durable.Activity("Y", other)) },
			"durable: " + here + `other is registered as activity "X" and as "Y"; a function can have only one name`,
		},
		{"closures of one literal", func() {
			durable.NewRegistry(durable.Activity("X", makeActivity("x")), durable.Activity("Y", makeActivity("y")))
		}, `is registered as activity "X" and as "Y"; a function can have only one name, and closures of one function literal count as one function`},
		{"one method of two values", func() {
			durable.NewRegistry(durable.Activity("X", (&mailer{"a"}).send), durable.Activity("Y", (&mailer{"b"}).send))
		}, here + `(*mailer).send is registered as activity "X" and as "Y"`},
		{"no name", func() { durable.Activity(" ", other) }, "durable: activity func(context.Context, string) (string, error) has no name"},
		{"a nil activity", func() { durable.Activity[int, int]("X", nil) }, `durable: activity "X" is a nil function`},
		{"a nil orchestrator", func() { durable.Orchestrator[int, int]("X", nil) }, `durable: orchestrator "X" is a nil function`},
		{"a nil Registration", func() { durable.NewRegistry(nil) }, "durable: a nil *Registration was added to a registry"},
		{
			"a generic function", func() { durable.Activity("X", generic[int]) },
			`durable: activity "X" is the generic function ` + here + "generic[...], which is indistinguishable from its other instances; register a plain function that calls it",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(panicOf(c.f)); !strings.Contains(got, c.want) {
				t.Errorf("panicked with %s, want %s", got, c.want)
			}
		})
	}
}

// Calls identify a method without its receiver. The activity runs with the receiver
// that was registered.
func TestRegistry_FindsAMethodWithAnyReceiver(t *testing.T) {
	t.Parallel()
	mail := &mailer{"smtp.example.com"}
	r := durable.NewRegistry(
		durable.Activity("SendMail", mail.send),
		durable.Activity("ReadClock", clock{"UTC"}.read),
		durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (string, error) {
			durable.CallActivity(ctx, (*mailer)(nil).send, "nil")
			durable.CallActivity(ctx, (&mailer{"other"}).send, "other")
			durable.CallActivity(ctx, clock{}.read, durable.Void{})
			durable.CallActivity(ctx, (&clock{"CET"}).read, durable.Void{})
			return "", nil
		}))
	s := stageOf(t, r)
	wantActions(t, s.Start(nil), `0 task SendMail ["nil"]`, `1 task SendMail ["other"]`, "2 task ReadClock [null]", "3 task ReadClock [null]", `4 Completed ""`)
	run, _ := durable.EngineOf(r).Activity("SendMail")
	if out, err := run(t.Context(), new(`["me"]`)); err != nil || *out != `"smtp.example.com to me"` {
		t.Errorf("the activity returned %v, %v", show(out), err)
	}
}

// The method of an interface is one function for all types, and differs from the
// methods of the types.
func TestRegistry_DoesNotFindAMethodThroughAnInterface(t *testing.T) {
	t.Parallel()
	mail := &mailer{"smtp.example.com"}
	s := stageOf(t, durable.NewRegistry(
		durable.Activity("SendMail", mail.send),
		durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.CallActivity(ctx, sender(mail).send, "x").Await()
		})))
	s.Start(nil)
	wantFailure(t, s, "durable_test.sender.send is not registered; add it to the registry with a name")
}

// Closures are identified by their literal. A call by reference finds the registered
// closure, even if it names another one.
func TestRegistry_TreatsAllClosuresOfALiteralAsOneFunction(t *testing.T) {
	t.Parallel()
	first, second := makeActivity("first "), makeActivity("second ")
	r := durable.NewRegistry(
		durable.Activity("First", first),
		durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.CallActivity(ctx, second, "x").Await()
		}))
	s := stageOf(t, r)
	wantActions(t, s.Start(nil), `0 task First ["x"]`)
}

func TestRegistry_RejectsANilActivity(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		var none func(context.Context, string) (string, error)
		return durable.CallActivity(ctx, none, "x").Await()
	})
	s.Start(nil)
	wantFailure(t, s, "durable: activity is a nil func(context.Context, string) (string, error)")
}

func TestRegistry_PassesContextErrorsAndPanicsOfAnActivity(t *testing.T) {
	t.Parallel()
	type key struct{}
	r := durable.NewRegistry(durable.Activity("X", func(ctx context.Context, what string) (string, error) {
		switch what {
		case "error":
			return "ignored", errDeclined
		case "panic":
			panic("boom")
		}
		return fmt.Sprint(ctx.Value(key{})), nil
	}))
	run, _ := durable.EngineOf(r).Activity("X")
	ctx := context.WithValue(t.Context(), key{}, "value")
	if out, err := run(ctx, new(`["context"]`)); err != nil || *out != `"value"` {
		t.Errorf("got %s, %v", show(out), err)
	}
	if out, err := run(ctx, new(`["error"]`)); !errors.Is(err, errDeclined) || out != nil {
		t.Errorf("got %s, %v", show(out), err)
	}
	if v := panicOf(func() { _, _ = run(ctx, new(`["panic"]`)) }); v != "boom" {
		t.Errorf("panicked with %v", v)
	}
}

func TestFunction_ReturnsItsName(t *testing.T) {
	t.Parallel()
	if got := durable.Activity("SendMail", other).Name(); got != "SendMail" {
		t.Errorf("got %s", got)
	}
}

// Registries that share a Registration are independent.
func TestRegistry_FunctionsCanBeShared(t *testing.T) {
	t.Parallel()
	f := durable.Orchestrator("Main", func(*durable.Context, durable.Void) (string, error) { return "", nil })
	for range 2 {
		s := stageOf(t, durable.NewRegistry(f))
		s.Start(nil)
		if s.End().Status != history.Completed {
			t.Errorf("ended as %s", describe(s.Actions))
		}
	}
}
