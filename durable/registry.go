package durable

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/gofunction"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Registration gives an orchestrator, an activity, an entity or an error its wire name
// in a [Registry]. [Orchestrator], [Activity], [Entity], [ErrorType] and [ErrorValue]
// return one.
type Registration struct {
	kind    functionKind
	name    string
	version Version                                                   // of an orchestrator; empty means all versions
	symbol  string                                                    // Go's name of the function, for messages
	fn      reflect.Value                                             // zero for errors and entities
	run     func(*Context, *string) (*string, error)                  // of an orchestrator
	act     func(ctx context.Context, input *string) (*string, error) // of an activity
	failure *namedError                                               // of an error
	entity  *entityType                                               // of an entity
}

// OrchestratorOption configures the registration of an [Orchestrator]. [Version]
// implements it.
type OrchestratorOption interface{ applyOrchestrator(*Registration) }

// Name returns the wire name.
func (f *Registration) Name() string { return f.name }

type functionKind string

const (
	orchestratorKind functionKind = "orchestrator"
	activityKind     functionKind = "activity"
	errorKind        functionKind = "error"
)

// Orchestrator gives an orchestrator its wire name, which identifies it in histories,
// in queues and for clients. Wire names are never derived from Go names, so you can
// rename the Go function while instances run.
//
// With a [Version] option the function runs only instances of that version, so several
// functions can share a name:
//
//	durable.Orchestrator("Checkout", checkoutV1, durable.Version("1.0")),
//	durable.Orchestrator("Checkout", Checkout, durable.Version("2.0")),
//
// An instance keeps the version that it was started with. If no function is registered
// for an instance's version, the unversioned function runs. Without either, the
// instance waits for another worker. A start or a call by reference uses the version of
// the function.
//
// Orchestrator panics if the name is empty, or if fn is nil or generic. [Registry.Add]
// explains how methods and closures are matched.
func Orchestrator[I, O any](name string, fn func(*Context, I) (O, error), opts ...OrchestratorOption) *Registration {
	f := newFunction(orchestratorKind, name, fn)
	for _, o := range opts {
		o.applyOrchestrator(f)
	}
	f.run = func(ctx *Context, input *string) (*string, error) {
		in, err := decode[I](input)
		if err != nil {
			return nil, NonRetryable(fmt.Errorf("decode input of orchestrator %s: %w", f.name, err))
		}
		ctx.x.ReportProgress()
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		output, err := ctx.encode(out)
		if err != nil {
			return nil, fmt.Errorf("encode output of orchestrator %s: %w", f.name, err)
		}
		return output, nil
	}
	return f
}

// Activity gives an activity its wire name. An activity is an ordinary function without
// restrictions. It runs at least once: if a worker crashes before the result is stored,
// the activity runs again.
//
// To give an activity its dependencies, such as a database connection, make it a method
// of a struct that holds them. Register the method value. Calls name the method with
// any receiver, such as a nil pointer:
//
//	durable.Activity("Charge", payments.Charge)
//	durable.CallActivity(ctx, (*Payments)(nil).Charge, order)
//
// Activity panics if the name is empty, or if fn is nil or generic. [Registry.Add]
// explains how methods and closures are matched.
func Activity[I, O any](name string, fn func(context.Context, I) (O, error)) *Registration {
	f := newFunction(activityKind, name, fn)
	f.act = func(ctx context.Context, input *string) (*string, error) {
		in, err := decodeArgument[I](input)
		if err != nil {
			return nil, NonRetryable(fmt.Errorf("decode input of activity %s: %w", f.name, err))
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		output, err := encode(out)
		if err != nil {
			return nil, fmt.Errorf("encode output of activity %s: %w", f.name, err)
		}
		return output, nil
	}
	return f
}

func newFunction(kind functionKind, name string, fn any) *Registration {
	v := reflect.ValueOf(fn)
	switch {
	case strings.TrimSpace(name) == "":
		panic(fmt.Sprintf("durable: %s %T has no name", kind, fn))
	case v.IsNil():
		panic(fmt.Sprintf("durable: %s %q is a nil function", kind, name))
	}
	f := &Registration{kind: kind, name: name, fn: v, symbol: gofunction.Symbol(v.Pointer())}
	if gofunction.IsGeneric(f.symbol) {
		panic(fmt.Sprintf("durable: %s %q is the generic function %s, which is indistinguishable from its other instances; "+
			"register a plain function that calls it", kind, name, f.symbol))
	}
	return f
}

// Registry maps wire names to functions and functions to wire names.
type Registry struct {
	byName  map[functionName]*Registration
	byCode  gofunction.Map[*Registration]
	byState map[reflect.Type]*Registration // entities
	errors  namedErrors
	worker  Config                  // of the worker that runs the functions; zero without one
	replays *dispatch.ReplayLimiter // of Verify and clients
}

type functionName struct {
	kind    functionKind
	name    string  // in upper case
	version Version // in upper case
}

func keyOf(f *Registration) functionName {
	return functionName{f.kind, strings.ToUpper(f.name), f.version.key()}
}

// NewRegistry returns a Registry that contains fns. It panics as [Registry.Add] does.
func NewRegistry(fns ...*Registration) *Registry {
	r := &Registry{
		byName: make(map[functionName]*Registration), byCode: make(gofunction.Map[*Registration]), byState: make(map[reflect.Type]*Registration),
		replays: new(dispatch.ReplayLimiter),
	}
	r.Add(fns...)
	return r
}

// Add adds fns to the registry. It must not be called while the registry is in use. To
// report mistakes at startup, it panics in these cases:
//
//  1. Two orchestrators of one version, two activities, two entities or two errors
//     have names that differ only in case. .NET treats such names as equal.
//  2. One Go function has two names or versions, or one type is the state of two
//     entities. A call by reference would be ambiguous.
//  3. A name starts with BuiltIn::. The prefix is reserved for functions that every
//     registry contains, such as the activity of [CallHTTP].
//
// A function is identified by its code:
//
//   - All values of one method are the same function, whatever their receivers. An
//     orchestrator can therefore call the activity mail.Send as (*Mailer)(nil).Send.
//     The method of an interface differs from the method of a type that implements it.
//   - All closures that one function literal creates are the same function. A call by
//     reference finds the registered one. Literals of one type that start on the same
//     line also count as one.
//   - Instances of a generic function are indistinguishable and cannot be registered.
//     Register a plain function that calls the instance.
//
// To register one activity twice with different configurations, write a function for
// each, and call them with an [ActivityName].
func (r *Registry) Add(fns ...*Registration) {
	for _, f := range fns {
		if f == nil {
			panic("durable: a nil *Registration was added to a registry")
		}
		checkReserved(f)
		name := keyOf(f)
		if other := r.byName[name]; other != nil {
			panic(fmt.Sprintf("durable: %s names %q and %q, of %s and %s, are the same; case is ignored",
				f.kind, other.name, f.name, other.symbol, f.symbol))
		}
		if f.failure != nil {
			r.byName[name] = f
			r.errors = append(r.errors, f.failure)
			continue
		}
		if f.entity != nil {
			if other := r.byState[f.entity.state]; other != nil {
				panic(fmt.Sprintf("durable: %s is the state of entity %q and of %q; a type can be the state of only one entity", f.symbol, other.name, f.name))
			}
			r.byName[name], r.byState[f.entity.state] = f, f
			continue
		}
		if other, ok := r.byCode.Get(f.fn); ok {
			panic(fmt.Sprintf("durable: %s is registered as %s %q and as %q; a function can have only one name, and %s",
				f.symbol, f.kind, other.name, f.name, gofunction.ClosureIdentity))
		}
		r.byName[name] = f
		r.byCode.Put(f.fn, f)
	}
}

// orchestrator returns the function for instances of a version, or nil.
func (r *Registry) orchestrator(name string, version Version) *Registration {
	key := functionName{orchestratorKind, strings.ToUpper(name), version.key()}
	if f := r.byName[key]; f != nil {
		return f
	}
	key.version = ""
	return r.byName[key]
}

// HasOrchestrator reports whether r has an orchestrator with the given wire name for
// instances of the given version. The version may be empty. Case is ignored.
func (r *Registry) HasOrchestrator(name string, version Version) bool {
	return r.orchestrator(name, version) != nil
}

// Orchestrators returns the names of all orchestrators, sorted.
func (r *Registry) Orchestrators() []string {
	var names []string
	for _, f := range r.byName {
		if f.kind == orchestratorKind {
			names = append(names, f.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// RegisteredFunction describes a function of a [Registry].
type RegisteredFunction struct {
	Kind    string // "orchestrator", "activity" or "entity"
	Name    string
	Version string // of an orchestrator; empty means all versions without a function of their own
}

// Functions returns the orchestrators, activities and entities of r, sorted by kind,
// name and version.
func (r *Registry) Functions() []RegisteredFunction {
	var all []RegisteredFunction
	for _, f := range r.byName {
		if f.failure == nil {
			all = append(all, RegisteredFunction{string(f.kind), f.name, string(f.version)})
		}
	}
	slices.SortFunc(all, func(a, b RegisteredFunction) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// contextOf returns the context of the orchestrator that f belongs to.
func contextOf(f *replay.Future) *Context { return (*Context)(f.Execution().Guard().(*foreignCalls)) }

// baseLogger returns the worker's logger.
func (r *Registry) baseLogger() *slog.Logger {
	if r.worker.Logger == nil {
		return slog.Default()
	}
	return r.worker.Logger
}

// forWorker returns a copy of r with the configuration of a worker.
func (r *Registry) forWorker(cfg Config) *Registry {
	other := *r
	other.worker = cfg
	return &other
}

// withLogger returns a copy of r whose orchestrators log to l.
func (r *Registry) withLogger(l *slog.Logger) *Registry {
	cfg := r.worker
	cfg.Logger = l
	return r.forWorker(cfg)
}

// functionOf returns the registration of fn.
func (r *Registry) functionOf(kind functionKind, fn any) (*Registration, error) {
	v := reflect.ValueOf(fn)
	if v.IsNil() {
		return nil, fmt.Errorf("durable: %s is a nil %T", kind, fn)
	}
	if f, ok := r.byCode.Get(v); ok {
		return f, nil
	}
	return nil, fmt.Errorf("durable: %s %s is not registered; add it to the registry with a name", kind, gofunction.Symbol(v.Pointer()))
}

// entityOf returns the entity whose state has type t.
func (r *Registry) entityOf(t reflect.Type) (*Registration, error) {
	if r == nil {
		return nil, fmt.Errorf("durable: cannot find the entity with state %v without a registry; use an EntityID", t)
	}
	if f := r.byState[t]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("durable: no entity has %v as its state; add it to the registry with durable.Entity", t)
}

// entityNamed returns the entity with the given wire name, or nil.
func (r *Registry) entityNamed(name string) *Registration {
	return r.byName[functionName{kind: entityKind, name: strings.ToUpper(name)}]
}

// builtIn returns the built-in activity with the given name, or nil.
func (r *Registry) builtIn(name string) func(context.Context, *string) (*string, error) {
	if !strings.EqualFold(name, string(HTTPActivityName)) {
		return nil
	}
	cfg := r.worker.HTTP.WithDefaults()
	return func(ctx context.Context, input *string) (*string, error) {
		in, err := decodeArgument[httpRequestJSON](input)
		if err != nil {
			return nil, NonRetryable(fmt.Errorf("decode HTTP request: %w", err))
		}
		resp, err := cfg.send(ctx, in)
		if err != nil {
			return nil, err
		}
		return encode(resp)
	}
}

// Lookup returns the registration of fn, the Go function of an orchestrator or an
// activity.
// It returns an error if fn is not a function or not registered.
func (r *Registry) Lookup(fn any) (*Registration, error) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil, fmt.Errorf("durable: %T is not a function", fn)
	}
	if named := v.Type(); named.Name() != "" {
		unnamed := reflect.FuncOf(slices.Collect(named.Ins()), slices.Collect(named.Outs()), named.IsVariadic())
		v = v.Convert(unnamed)
	}
	if f, ok := r.byCode.Get(v); ok {
		return f, nil
	}
	return nil, fmt.Errorf("durable: %s is not registered; add it to the registry with a name", gofunction.Symbol(v.Pointer()))
}

// Version returns the version that the orchestrator is registered for. It is empty if
// the orchestrator is registered for all versions.
func (f *Registration) Version() Version { return f.version }

// Replace returns a copy of r with f. If r contains a function with f's kind, name and
// version, f replaces it, and calls by reference to the replaced function run f. Calls
// by reference to f's own Go function fail. Use Replace in tests to substitute a
// function.
func (r *Registry) Replace(f *Registration) *Registry {
	other := *r
	other.byName = maps.Clone(r.byName)
	other.byName[keyOf(f)] = f
	return &other
}

// Verify checks that an instance with the given history can continue with the
// registered orchestrators. [Client.History] returns such a history. Verify replays it
// in memory; it writes nothing and runs no activities. It ignores the values of inputs
// and results, because instances can continue if these change.
//
// The error is a *[HistoryMismatchError] if the code deviates from the history. It
// wraps [ErrNotRegistered] if the orchestrator is not registered, and
// [ErrActivityNotRegistered] if the instance waits for an activity that the code now
// calls as a step and that is not registered. It is a *[StallError]
// if the orchestrator makes no progress for 10 seconds; the goroutine of the replay
// then remains, and later calls do not replay this instance. A history without a start
// event is an error too.
//
// Histories of entities, and empty histories of instances that have not started, are
// not replayed; the error is nil.
func (r *Registry) Verify(events []history.Event) error { return verify(r, events) }

// WithLogger returns a copy of r whose orchestrators log to l. A [Worker] that runs the
// copy uses its own logger instead.
func (r *Registry) WithLogger(l *slog.Logger) *Registry { return r.withLogger(l) }

// engineFunctions implements [dispatch.AllFunctions] for a registry.
type engineFunctions Registry

// The test kit and the simulator run the functions of a registry without a worker. This
// hook gives them the functions, which the API does not export.
func init() {
	dispatch.FunctionsOf = func(registry any) dispatch.AllFunctions { return (*engineFunctions)(registry.(*Registry)) }
}

// Orchestrator returns the orchestrator with the given wire name, for instances of the
// given version. Case is ignored. If none is registered for the version, it returns the
// one that is registered without a version.
func (e *engineFunctions) Orchestrator(name, version string) (replay.Code, bool) {
	r := (*Registry)(e)
	f := r.orchestrator(name, Version(version))
	if f == nil {
		return nil, false
	}
	return func(x *replay.Execution, input *string) (*string, error) {
		ctx := &Context{x: x, registry: r, function: f}
		x.SetGuard((*foreignCalls)(ctx))
		x.LimitActions(r.worker.MaxOrchestrationActions)
		x.SetEntityReorderWindow(r.worker.EntityReorderWindow)
		output, err := f.run(ctx, input)
		return output, r.errors.describe(err)
	}, true
}

// Activity returns the activity with the given wire name, as a function on encoded
// inputs and results. Case is ignored. The function does not recover panics of the
// activity.
func (e *engineFunctions) Activity(name string) (func(ctx context.Context, input *string) (*string, error), bool) {
	r := (*Registry)(e)
	var act func(context.Context, *string) (*string, error)
	if f := r.byName[functionName{kind: activityKind, name: strings.ToUpper(name)}]; f != nil {
		act = f.act
	} else if act = r.builtIn(name); act == nil {
		return nil, false
	}
	return func(ctx context.Context, input *string) (*string, error) {
		output, err := act(ctx, input)
		return output, r.errors.describe(err)
	}, true
}

// Entity returns the entity with the given wire name, as a function that performs one
// operation. Case is ignored. The function does not recover panics of the operation.
func (e *engineFunctions) Entity(name string) (dispatch.EntityCode, bool) {
	r := (*Registry)(e)
	f := r.entityNamed(name)
	if f == nil {
		return nil, false
	}
	return func(ctx context.Context, op *entity.Operation) entity.Result { return f.entity.perform(ctx, r, op) }, true
}
