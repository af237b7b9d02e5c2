package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/go-cmp/cmp"
)

// counter is an entity that adds numbers.
type counter struct {
	Total int64 `json:"total"`
}

var errNegative = errors.New("would go negative")

func (c *counter) Add(_ *durable.EntityContext, n int64) (int64, error) {
	c.Total += n
	if c.Total < 0 {
		return 0, errNegative
	}
	return c.Total, nil
}

func (c *counter) Get(*durable.EntityContext, durable.Void) (int64, error) { return c.Total, nil }

func (c *counter) Reset(ctx *durable.EntityContext, _ durable.Void) (durable.Void, error) {
	ctx.Delete()
	return durable.Void{}, nil
}

func counters(more ...durable.Operation[counter]) *durable.Registration {
	return durable.Entity("Counter", append([]durable.Operation[counter]{
		durable.Op("add", (*counter).Add), durable.Op("get", (*counter).Get), durable.Op("reset", (*counter).Reset),
	}, more...)...)
}

// store is an entity whose operations are not known at registration.
type store map[string]json.RawMessage

func (s *store) Do(ctx *durable.EntityContext, in json.RawMessage) (any, error) {
	verb, name, _ := strings.Cut(ctx.Operation(), " ")
	switch verb {
	case "put":
		if *s == nil {
			*s = store{}
		}
		(*s)[name] = in
		return nil, nil
	case "names":
		return slices.Sorted(maps.Keys(*s)), nil
	}
	return nil, fmt.Errorf("no %s", verb)
}

// perform runs an operation of the entity f.
func perform(t *testing.T, f *durable.Registration, op entity.Operation) entity.Result {
	t.Helper()
	code, ok := durable.EngineOf(durable.NewRegistry(f, durable.Orchestrator("Ship", shipIt), durable.ErrorValue("Negative", errNegative))).Entity(f.Name())
	if !ok {
		t.Fatalf("the registry has no entity %s", f.Name())
	}
	op.Entity = entity.ID{Name: f.Name(), Key: "k"}
	if op.Now.IsZero() {
		op.Now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	}
	op.RequestID = "r1"
	return code(t.Context(), &op)
}

func shipIt(*durable.Context, string) (durable.Void, error) { return durable.Void{}, nil }

// undecodable is a state that cannot be decoded or initialized.
type undecodable struct{}

func (*undecodable) UnmarshalJSON([]byte) error { panic("oh") }

func undecodables() *durable.Registration {
	return durable.Entity("Undecodable", durable.InitialState(func(durable.EntityID) undecodable { panic("ah") }))
}

func shown(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

// keeper is an entity that defines the operation delete.
type keeper struct{ N int }

func (k *keeper) Delete(*durable.EntityContext, durable.Void) (int, error) {
	k.N++
	return k.N, nil
}

func TestEntity_PerformsOperationsOnItsState(t *testing.T) {
	t.Parallel()
	stores := durable.Entity("Store", durable.AnyOp((*store).Do))
	keeper := durable.Entity("Keeper", durable.Op("Delete", (*keeper).Delete))
	begins := counters(durable.InitialState(func(id durable.EntityID) counter { return counter{int64(len(id.Key)) * 100} }))
	for _, c := range []struct {
		name          string
		of            *durable.Registration
		op            entity.Operation
		state, output string
		failure       string
	}{
		{"the first operation gets the zero value", counters(), entity.Operation{Name: "add", Input: new("5")}, `{"total":5}`, "5", ""},
		{"a later operation gets the stored state", counters(), entity.Operation{Name: "add", Input: new("5"), State: new(`{"total":2}`)}, `{"total":7}`, "7", ""},
		{"names are case-insensitive", counters(), entity.Operation{Name: "ADD", Input: new("5")}, `{"total":5}`, "5", ""},
		{"a read creates the entity", counters(), entity.Operation{Name: "get"}, `{"total":0}`, "0", ""},
		{"initial state", begins, entity.Operation{Name: "add", Input: new("5")}, `{"total":105}`, "105", ""},
		{"initial state is not used later", begins, entity.Operation{Name: "add", Input: new("5"), State: new(`{"total":2}`)}, `{"total":7}`, "7", ""},
		{"an operation deletes the entity", counters(), entity.Operation{Name: "reset", State: new(`{"total":2}`)}, "none", "none", ""},
		{"every entity can be deleted", counters(), entity.Operation{Name: "Delete", State: new(`{"total":2}`)}, "none", "none", ""},
		{"delete without a state", counters(), entity.Operation{Name: "delete"}, "none", "none", ""},
		{"delete does not decode the state", counters(), entity.Operation{Name: "delete", State: new(`"x"`)}, "none", "none", ""},
		{"delete avoids a panic of the state", undecodables(), entity.Operation{Name: "DELETE", State: new(`"x"`)}, "none", "none", ""},
		{"delete needs no initial state", undecodables(), entity.Operation{Name: "delete"}, "none", "none", ""},
		{"custom delete operation", keeper, entity.Operation{Name: "delete", State: new(`{"N":2}`)}, `{"N":3}`, "3", ""},
		{"an error", counters(), entity.Operation{Name: "add", Input: new("-5")}, `{"total":-5}`, "none", "Negative: would go negative"},
		{
			"unknown operation", counters(),
			entity.Operation{Name: "sub", State: new("7")},
			"7", "none",
			`durable.OperationNotFoundError: entity "counter" has no operation "sub"`,
		},
		{"invalid input", counters(), entity.Operation{Name: "add", Input: new(`"x"`)}, `{"total":0}`, "none", "decode input of operation add of @counter@k"},
		{"invalid state", counters(), entity.Operation{Name: "get", State: new(`"x"`)}, `"x"`, "none", "decode state of @counter@k"},
		{"AnyOp", stores, entity.Operation{Name: "put a", Input: new(`{"x":1}`)}, `{"a":{"x":1}}`, "none", ""},
		{"AnyOp with an output", stores, entity.Operation{Name: "names", State: new(`{"b":1,"a":2}`)}, `{"b":1,"a":2}`, `["a","b"]`, ""},
		{"AnyOp without a state", stores, entity.Operation{Name: "names"}, "none", "none", ""},
		{"AnyOp with an error", stores, entity.Operation{Name: "drop"}, "none", "none", "no drop"},
		{"delete does not call AnyOp", stores, entity.Operation{Name: "delete", State: new(`{"b":1}`)}, "none", "none", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := perform(t, c.of, c.op)
			got := "none"
			if r.State != nil {
				got = *r.State
			}
			if c.op.Name == "names" && c.op.State != nil {
				got = *c.op.State // maps are encoded in the order of their keys
			}
			if got != c.state || shown(r.Output) != c.output {
				t.Errorf("state %s, output %s, want %s, %s", got, shown(r.Output), c.state, c.output)
			}
			switch {
			case c.failure == "" && r.Failure != nil:
				t.Errorf("failed: %v", r.Failure)
			case c.failure != "" && (r.Failure == nil || !strings.Contains(r.Failure.ErrorType+": "+r.Failure.ErrorMessage, c.failure)):
				t.Errorf("failure %v, want %q", r.Failure, c.failure)
			}
		})
	}
}

// teller is an entity that returns the data of its context, and sends messages.
type teller struct{}

func (*teller) Tell(ctx *durable.EntityContext, _ durable.Void) ([]any, error) {
	return []any{ctx.ID(), ctx.Operation(), ctx.HasState(), ctx.IsSignal(), ctx.Caller(), ctx.Now()}, nil
}

func (*teller) Send(ctx *durable.EntityContext, in string) ([]durable.InstanceID, error) {
	durable.EntityOperation[int, durable.Void]("add").SignalFrom(ctx, durable.EntityID{Name: "Counter", Key: "X"}, 1)
	durable.EntityOperation[int, durable.Void]("add").SignalFrom(ctx, durable.EntityID{Name: "counter", Key: ""}, 2, durable.SignalAfter(time.Hour))
	durable.SignalFrom(ctx, durable.EntityKey[teller]("y"), (*teller).Tell, durable.Void{}, durable.SignalAt(ctx.Now().Add(-time.Hour)))
	random, err := durable.StartFrom(ctx, shipIt, in)
	if err != nil {
		return nil, err
	}
	chosen, err := durable.OrchestratorName[string, durable.Void]("Pack").StartFrom(ctx, in,
		durable.InstanceID("pack-1"), durable.Version("2"), durable.Tags{"a": "b"}, durable.StartAt(ctx.Now().Add(time.Minute)))
	return []durable.InstanceID{random, chosen}, err
}

func (*teller) Misuse(ctx *durable.EntityContext, what string) (durable.Void, error) {
	switch what {
	case "key":
		durable.SignalFrom(ctx, durable.EntityKey[teller]("a/b"), (*teller).Tell, durable.Void{})
	case "state":
		durable.SignalFrom(ctx, durable.EntityKey[counter]("a"), (*counter).Get, durable.Void{})
	case "operation":
		durable.SignalFrom(ctx, durable.EntityKey[teller]("a"), func(*teller, *durable.EntityContext, int) (int, error) { return 0, nil }, 1)
	case "input":
		durable.EntityOperation[func(), durable.Void]("add").SignalFrom(ctx, durable.EntityID{Name: "counter"}, func() {})
	}
	return durable.Void{}, nil
}

func tellers() *durable.Registration {
	return durable.Entity("Teller", durable.Op("tell", (*teller).Tell), durable.Op("send", (*teller).Send), durable.Op("misuse", (*teller).Misuse))
}

func TestEntityContext_DescribesTheOperation(t *testing.T) {
	t.Parallel()
	r := perform(t, tellers(), entity.Operation{Name: "TELL", State: new("{}"), Signal: true, Caller: "abc"})
	want := `[{"name":"teller","key":"k"},"TELL",true,true,"abc","2026-01-05T12:00:00Z"]`
	if shown(r.Output) != want {
		t.Errorf("output %s, want %s", shown(r.Output), want)
	}
	r = perform(t, tellers(), entity.Operation{Name: "tell"})
	want = `[{"name":"teller","key":"k"},"tell",false,false,"","2026-01-05T12:00:00Z"]`
	if shown(r.Output) != want {
		t.Errorf("output %s, want %s", shown(r.Output), want)
	}
}

func TestEntityContext_SignalsAndStarts(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	r := perform(t, tellers(), entity.Operation{Name: "send", Input: new(`"x"`)})
	var ids []string
	if err := json.Unmarshal([]byte(shown(r.Output)), &ids); err != nil || len(ids) != 2 || len(ids[0]) != 32 {
		t.Fatalf("output %s, %v: want two instance IDs", shown(r.Output), err)
	}
	want := []entity.Action{
		&entity.Signal{Target: entity.ID{Name: "counter", Key: "X"}, Operation: "add", Input: new("1")},
		&entity.Signal{Target: entity.ID{Name: "counter"}, Operation: "add", Input: new("2"), Due: noon.Add(time.Hour)},
		&entity.Signal{Target: entity.ID{Name: "teller", Key: "y"}, Operation: "tell"},
		&entity.Start{Name: "Ship", InstanceID: ids[0], Input: new(`"x"`)},
		&entity.Start{Name: "Pack", Version: "2", InstanceID: "pack-1", Input: new(`"x"`), Tags: map[string]string{"a": "b"}, Due: noon.Add(time.Minute)},
	}
	if diff := cmp.Diff(r.Actions, want); diff != "" {
		t.Errorf("actions (-got +want):\n%s", diff)
	}
	again := perform(t, tellers(), entity.Operation{Name: "send", Input: new(`"x"`)})
	if diff := cmp.Diff(r.Actions, again.Actions); diff != "" {
		t.Errorf("the actions of a second run differ:\n%s", diff)
	}
}

func TestEntityContext_PanicsOnMisuse(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		"key":       "must not contain",
		"state":     "no entity has durable_test.counter as its state",
		"operation": "is not an operation of entity",
		"input":     "encode input of operation add of @counter@",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			defer func() {
				err, _ := recover().(error)
				var usage *durable.UsageError
				if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
					t.Errorf("panicked with %v, want a UsageError with %q", err, want)
				}
			}()
			text, _ := json.Marshal(what)
			perform(t, tellers(), entity.Operation{Name: "misuse", Input: new(string(text))})
		})
	}
}

func TestEntityContext_PanicsAfterItsOperation(t *testing.T) {
	t.Parallel()
	var kept *durable.EntityContext
	keeps := durable.Entity("Keeper", durable.Op("keep", func(_ *bool, ctx *durable.EntityContext, _ int) (int, error) {
		kept = ctx
		return 0, nil
	}))
	perform(t, keeps, entity.Operation{Name: "keep"})
	defer func() {
		if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "after operation keep of @keeper@k had returned") {
			t.Errorf("panicked with %v, want a UsageError about the returned operation", err)
		}
	}()
	durable.EntityOperation[int, int]("add").SignalFrom(kept, durable.EntityID{Name: "x"}, 1)
}

func TestEntityContext_IsCanceledWithTheWorker(t *testing.T) {
	t.Parallel()
	type key struct{}
	code, _ := durable.EngineOf(durable.NewRegistry(durable.Entity("Waiter", durable.Op("wait", func(_ *bool, ctx *durable.EntityContext, _ int) (string, error) {
		v, _ := ctx.Value(key{}).(string)
		return v, ctx.Err()
	})))).Entity("waiter")
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	cancel()
	if r := code(ctx, &entity.Operation{Name: "wait"}); r.Failure == nil || r.Failure.ErrorType != "context.Canceled" {
		t.Errorf("failure %v, want context.Canceled", r.Failure)
	}
}

func TestEntity_PanicsOnInvalidRegistrations(t *testing.T) {
	t.Parallel()
	add := durable.Op("add", (*counter).Add)
	for name, c := range map[string]struct {
		register func()
		want     string
	}{
		"no name":                   {func() { durable.Entity[counter]("") }, "must not be empty"},
		"an @ in the name":          {func() { durable.Entity[counter]("a@b") }, "must not contain @"},
		"a / in the name":           {func() { durable.Entity[counter]("a/b") }, "must not contain /"},
		"no name for an operation":  {func() { durable.Entity("C", durable.Op(" ", (*counter).Add)) }, "has no name"},
		"two names for a method":    {func() { durable.Entity("C", add, durable.Op("plus", (*counter).Add)) }, `"add" of entity "c" and also "plus"`},
		"one name for two methods":  {func() { durable.Entity("C", add, durable.Op("ADD", (*counter).Get)) }, "two operations named"},
		"a nil operation":           {func() { durable.Entity("C", durable.Op[counter, int, int]("add", nil)) }, "nil function"},
		"two AnyOp functions":       {func() { durable.Entity("S", durable.AnyOp((*store).Do), durable.AnyOp((*store).Do)) }, "two functions"},
		"a nil AnyOp function":      {func() { durable.Entity("S", durable.AnyOp[store](nil)) }, "nil function"},
		"a nil initial state":       {func() { durable.Entity("C", durable.InitialState[counter](nil)) }, "nil function"},
		"a generic operation":       {func() { durable.Entity("C", durable.Op("add", genericOp[counter])) }, "generic function"},
		"two entities of one name":  {func() { durable.NewRegistry(counters(), durable.Entity[teller]("COUNTER")) }, "are the same"},
		"two entities of one state": {func() { durable.NewRegistry(counters(), durable.Entity[counter]("Meter")) }, `entity "counter" and of "meter"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panicked with %q, want %q", got, c.want)
				}
			}()
			c.register()
		})
	}
}

func genericOp[S any](*S, *durable.EntityContext, int) (int, error) { return 0, nil }

func TestReplaceOperation_RunsTheStub(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry(counters())
	stubbed, err := durable.ReplaceOperation(r, (*counter).Add, func(c *counter, _ *durable.EntityContext, n int64) (int64, error) {
		c.Total = 42
		return -n, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]*durable.Registry{`5, {"total":5}`: r, `-5, {"total":42}`: stubbed} {
		code, _ := durable.EngineOf(r).Entity("Counter")
		result := code(t.Context(), &entity.Operation{Name: "add", Input: new("5")})
		if got := shown(result.Output) + ", " + shown(result.State); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := durable.ReplaceOperation(r, (*teller).Tell, (*teller).Tell); err == nil {
		t.Error("ReplaceOperation accepted an operation of an unregistered entity")
	}
}
