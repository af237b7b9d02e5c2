package durable_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

type stringActivity = func(context.Context, string) (string, error)

// inlined is like makeActivity, but the compiler inlines it, so the closure of each
// call has separate code. With -gcflags=-l it is not inlined.
func inlined(prefix string) stringActivity {
	return func(_ context.Context, s string) (string, error) { return prefix + s, nil }
}

// twoOfOneLine returns closures of two literals on one line.
func twoOfOneLine(prefix string) (_, _ stringActivity) {
	a, b := func(_ context.Context, s string) (string, error) { return prefix + s, nil }, func(context.Context, string) (string, error) { return prefix, nil }
	return a, b
}

func ofAny[T any](v T) func(context.Context, T) (T, error) {
	return func(context.Context, T) (T, error) { return v, nil }
}

type sumOf struct{ N int }

func addTo(n int) func(*sumOf, *durable.EntityContext, int) (int, error) {
	return func(t *sumOf, _ *durable.EntityContext, _ int) (int, error) { t.N += n; return t.N, nil }
}

// Inlining must not change the results. Run this with -gcflags=-l too.
func TestRegistry_ClosureIdentityDoesNotDependOnInlining(t *testing.T) {
	t.Parallel()
	registers := func(a, b stringActivity) func() {
		return func() { durable.NewRegistry(durable.Activity("X", a), durable.Activity("Y", b)) }
	}
	inOne, inTwo := twoOfOneLine("x")
	const same = "is registered as activity \"X\" and as \"Y\""
	for name, c := range map[string]struct {
		f    func()
		want string
	}{
		"one literal, not inlined": {registers(makeActivity("x"), makeActivity("y")), same},
		"one literal, inlined":     {registers(inlined("x"), inlined("y")), same},
		"two literals":             {registers(inlined("x"), makeActivity("y")), "<nil>"},
		"two literals of one line": {registers(inOne, inTwo), same},
		"a literal and a function": {registers(inlined("x"), other), "<nil>"},
		"two signatures":           {func() { durable.NewRegistry(durable.Activity("X", ofAny(1)), durable.Activity("Y", ofAny(""))) }, "<nil>"},
		"two signatures, one shape": {func() {
			durable.NewRegistry(durable.Activity("X", ofAny(new(int))), durable.Activity("Y", ofAny(new(string))))
		}, "<nil>"},
		"operations of one literal": {
			func() { durable.Entity("Tally", durable.Op("X", addTo(1)), durable.Op("Y", addTo(2))) }, "is operation \"X\" of entity \"tally\" and also \"Y\"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(panicOf(c.f)); !strings.Contains(got, c.want) {
				t.Errorf("panicked with %s, want %s", got, c.want)
			}
		})
	}
	if a, b := reflect.ValueOf(inlined("x")).Pointer(), reflect.ValueOf(inlined("y")).Pointer(); a == b {
		t.Log("nothing is inlined")
	}
}

// A call with a new closure of a registered literal finds the registered function.
func TestRegistry_FindsAClosureByItsLiteral(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry(durable.Activity("X", inlined("x")), durable.Activity("Y", ofAny(new(int))), durable.Activity("Z", ofAny(new(string))),
		durable.Entity("Tally", durable.Op("X", addTo(1))),
		durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (string, error) {
			durable.CallActivity(ctx, inlined("another"), "in")
			durable.CallActivity(ctx, ofAny(new(int)), nil)
			durable.CallActivity(ctx, ofAny(new(string)), nil)
			durable.SignalFrom(ctx, durable.EntityKey[sumOf]("k"), addTo(2), 1)
			return "", nil
		}))
	s := stageOf(t, r)
	got := describe(s.Start(nil))
	for _, want := range []string{" X ", " Y ", " Z "} {
		if !strings.Contains(got, want) {
			t.Errorf("actions are\n%swant a call of%s", got, want)
		}
	}
	s.Output(history.Completed)
	type named func(context.Context, string) (string, error)
	if f, err := r.Lookup(named(inlined("third"))); err != nil || f.Name() != "X" {
		t.Errorf("Lookup returned %v, %v", f, err)
	}
}
