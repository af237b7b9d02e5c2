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
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A Function is a named orchestrator, activity or entity, or a named error, ready to
// be added to a [Registry].
type Function struct {
	kind    functionKind
	name    string
	version Version                                                   // of an orchestrator; empty if it is for all versions
	symbol  string                                                    // Go's name of the function, for messages
	fn      reflect.Value                                             // zero for an error and an entity
	run     func(*Context, *string) (*string, error)                  // of an orchestrator
	act     func(ctx context.Context, input *string) (*string, error) // of an activity
	failure *namedError                                               // of an error
	entity  *entityType                                               // of an entity
}

// A FuncOption says more about an orchestrator that is given a name: [Version]
// is one.
type FuncOption interface{ applyFunction(*Function) }

// Name returns the name that the function has on the wire.
func (f *Function) Name() string { return f.name }

type functionKind string

const (
	orchestratorKind functionKind = "orchestrator"
	activityKind     functionKind = "activity"
	errorKind        functionKind = "error"
)

// Orchestrator gives an orchestrator the name that it has on the wire: in
// histories, in queues and for clients. Names are never guessed from Go's, so
// that renaming the function strands no instance.
//
// With a [Version] it is the orchestrator for instances of that version only,
// so that several functions can share a name:
//
//	durable.Orchestrator("Checkout", checkoutV1, durable.Version("1.0")),
//	durable.Orchestrator("Checkout", Checkout, durable.Version("2.0")),
//
// An instance keeps the version that it was started with, and so its function.
// One whose version has no function of its own gets the function that was
// registered without a version; if there is none, it waits for a worker that
// has one. A start or a call by reference is of the function's version.
//
// It panics if there is no name, or fn is nil or generic. A function is recognised by
// its code: see [Registry.Add] for what that means for methods and closures.
func Orchestrator[I, O any](name string, fn func(*Context, I) (O, error), opts ...FuncOption) *Function {
	f := newFunction(orchestratorKind, name, fn)
	for _, o := range opts {
		o.applyFunction(f)
	}
	f.run = func(ctx *Context, input *string) (*string, error) {
		in, err := decode[I](input)
		if err != nil {
			return nil, NonRetryable(fmt.Errorf("decode input of orchestrator %s: %w", f.name, err))
		}
		ctx.x.Progressed()
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

// Activity gives an activity the name that it has on the wire. An activity is
// an ordinary function that may do anything. It runs at least once: again when
// a worker is lost before its result was stored.
//
// An activity that needs something, such as a connection to a database, is a method of
// a struct that has it. The method value is registered, and a call names the method by
// any value, such as a nil pointer:
//
//	durable.Activity("Charge", payments.Charge)
//	durable.CallActivity(ctx, (*Payments)(nil).Charge, order)
//
// It panics if there is no name, or fn is nil or generic. A function is recognised by
// its code: see [Registry.Add] for what that means for methods and closures.
func Activity[I, O any](name string, fn func(context.Context, I) (O, error)) *Function {
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

func newFunction(kind functionKind, name string, fn any) *Function {
	v := reflect.ValueOf(fn)
	switch {
	case strings.TrimSpace(name) == "":
		panic(fmt.Sprintf("durable: %s %T was given no name", kind, fn))
	case v.IsNil():
		panic(fmt.Sprintf("durable: %s %q is a nil function", kind, name))
	}
	f := &Function{kind: kind, name: name, fn: v, symbol: symbolOf(v.Pointer())}
	if isGeneric(f.symbol) {
		panic(fmt.Sprintf("durable: %s %q is the generic function %s, which looks the same as its other instances; "+
			"register a plain function that calls it", kind, name, f.symbol))
	}
	return f
}

// A Registry knows functions by their wire names, and wire names by functions.
type Registry struct {
	byName  map[functionName]*Function
	byCode  byFunction[*Function]
	byState map[reflect.Type]*Function // entities
	errors  namedErrors
	worker  workerSettings
	replays *dispatch.Replays // by Verify and clients
}

// workerSettings are what a worker lets orchestrators know and do.
type workerSettings struct {
	logger     *slog.Logger // nil: slog.Default()
	version    Version      // of children for which none was chosen
	maxActions int          // of an execution; 0: any number
	// entityWindow is Config.EntityReorderWindow, or zero for its default.
	entityWindow time.Duration
	http         HTTPConfig // zero: its defaults
}

type functionName struct {
	kind    functionKind
	name    string  // in upper case
	version Version // in upper case
}

func keyOf(f *Function) functionName {
	return functionName{f.kind, strings.ToUpper(f.name), f.version.key()}
}

// NewRegistry returns a Registry of fns, by the rules of [Registry.Add].
func NewRegistry(fns ...*Function) *Registry {
	r := &Registry{
		byName: make(map[functionName]*Function), byCode: make(byFunction[*Function]), byState: make(map[reflect.Type]*Function),
		replays: new(dispatch.Replays),
	}
	r.Add(fns...)
	return r
}

// Add adds fns. It must not be called while the registry is in use. It panics,
// so that a program with a mistake does not start, if
//
//  1. two orchestrators of one version, two activities, two entities or two errors
//     have names that differ in nothing but case: .NET takes them for one;
//  2. one Go function has two names or versions, or one type is the state of two
//     entities, since a call by reference could not tell which is meant;
//  3. a name begins with BuiltIn::, which is reserved for what every registry
//     has, such as the activity of [CallHTTP].
//
// A function is recognised by its code:
//
//   - All values of one method are the same function, whatever their receivers: an
//     orchestrator can call the activity mail.Send as (*Mailer)(nil).Send. The method
//     of an interface is another function than that of the type that implements it.
//   - All closures that one function literal makes are the same function, so a call by
//     reference finds whichever of them is registered; literals of one type that begin
//     in one line count as one.
//   - Instances of a generic function look the same, and cannot be registered: a plain
//     function that calls one can.
//
// Two differently configured activities with the same code need an [ActivityName] for
// their calls, and a function of their own each to register.
func (r *Registry) Add(fns ...*Function) {
	for _, f := range fns {
		if f == nil {
			panic("durable: a nil *Function was added to a registry")
		}
		checkReserved(f)
		name := keyOf(f)
		if other := r.byName[name]; other != nil {
			panic(fmt.Sprintf("durable: %s names %q and %q, of %s and %s, are the same: case does not matter",
				f.kind, other.name, f.name, other.symbol, f.symbol))
		}
		if f.failure != nil {
			r.byName[name] = f
			r.errors = append(r.errors, f.failure)
			continue
		}
		if f.entity != nil {
			if other := r.byState[f.entity.state]; other != nil {
				panic(fmt.Sprintf("durable: %s is the state of entity %q and of %q; one type can be the state of one entity", f.symbol, other.name, f.name))
			}
			r.byName[name], r.byState[f.entity.state] = f, f
			continue
		}
		if other, ok := r.byCode.get(f.fn); ok {
			panic(fmt.Sprintf("durable: %s is registered as %s %q and as %q; one function can have one name, and %s",
				f.symbol, f.kind, other.name, f.name, oneLiteral))
		}
		r.byName[name] = f
		r.byCode.put(f.fn, f)
	}
}

// orchestrator returns the function for instances of a version, nil if there is
// none.
func (r *Registry) orchestrator(name string, version Version) *Function {
	key := functionName{orchestratorKind, strings.ToUpper(name), version.key()}
	if f := r.byName[key]; f != nil {
		return f
	}
	key.version = ""
	return r.byName[key]
}

// HasOrchestrator reports whether r has an orchestrator with the given wire name for
// instances of a version, which is empty if they have none. Case does not matter.
func (r *Registry) HasOrchestrator(name string, version Version) bool {
	return r.orchestrator(name, version) != nil
}

// Orchestrators returns the names of all orchestrators, in order.
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

// A RegisteredFunction is what is known of a function in a [Registry].
type RegisteredFunction struct {
	Kind    string // "orchestrator", "activity" or "entity"
	Name    string
	Version string // of an orchestrator; empty: for all versions that have none of their own
}

// Functions returns the orchestrators, activities and entities of r, in order of their kinds
// and names.
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
	if r.worker.logger == nil {
		return slog.Default()
	}
	return r.worker.logger
}

// forWorker returns a registry of the same functions, whose orchestrators know
// and may do what s says.
func (r *Registry) forWorker(s workerSettings) *Registry {
	other := *r
	other.worker = s
	return &other
}

// withLogger returns a registry of the same functions whose orchestrators log
// to l.
func (r *Registry) withLogger(l *slog.Logger) *Registry {
	s := r.worker
	s.logger = l
	return r.forWorker(s)
}

// functionOf returns what fn was registered as.
func (r *Registry) functionOf(kind functionKind, fn any) (*Function, error) {
	v := reflect.ValueOf(fn)
	if v.IsNil() {
		return nil, fmt.Errorf("durable: %s is a nil %T", kind, fn)
	}
	if f, ok := r.byCode.get(v); ok {
		return f, nil
	}
	return nil, fmt.Errorf("durable: %s %s is not registered; add it to the registry with a name", kind, symbolOf(v.Pointer()))
}

// entityOf returns the entity whose state is a t.
func (r *Registry) entityOf(t reflect.Type) (*Function, error) {
	if r == nil {
		return nil, fmt.Errorf("durable: which entities have %v as their state is not known without a registry; use an EntityID", t)
	}
	if f := r.byState[t]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("durable: no entity has %v as its state; add it to the registry with durable.Entity", t)
}

// entityNamed returns the entity with the given wire name, nil if there is none.
func (r *Registry) entityNamed(name string) *Function {
	return r.byName[functionName{kind: entityKind, name: strings.ToUpper(name)}]
}

// builtIn returns the activity that every registry has under the given name, nil
// if there is none.
func (r *Registry) builtIn(name string) func(context.Context, *string) (*string, error) {
	if !strings.EqualFold(name, string(HTTPActivityName)) {
		return nil
	}
	cfg := r.worker.http.WithDefaults()
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

// Lookup returns what fn, an orchestrator's or an activity's function, was
// registered as.
func (r *Registry) Lookup(fn any) (*Function, error) {
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return nil, fmt.Errorf("durable: a %T is no function", fn)
	}
	if named := v.Type(); named.Name() != "" {
		unnamed := reflect.FuncOf(slices.Collect(named.Ins()), slices.Collect(named.Outs()), named.IsVariadic())
		v = v.Convert(unnamed)
	}
	if f, ok := r.byCode.get(v); ok {
		return f, nil
	}
	return nil, fmt.Errorf("durable: %s is not registered; add it to the registry with a name", symbolOf(v.Pointer()))
}

// Version returns the version that an orchestrator is for, empty if it is for
// all.
func (f *Function) Version() Version { return f.version }

// Replace returns a copy of r in which f is the function of its kind, name and
// version, whether r has one or not. Calls by reference to the one that it
// replaces reach f; f's own Go function is not known to the copy. It is for
// tests that put something else in a function's place.
func (r *Registry) Replace(f *Function) *Registry {
	other := *r
	other.byName = maps.Clone(r.byName)
	other.byName[keyOf(f)] = f
	return &other
}

// Verify reports whether an instance with the given history, such as [Client.History]
// returns, can go on with the registered orchestrators: it replays the history in memory.
// Nothing is written, and no activity runs. Results are not compared with what the code
// would return, nor inputs with what it would pass on, since a change of those strands
// no instance.
//
// The error is a *[HistoryMismatchError], or wraps [ErrNotRegistered], or says that the
// history has no beginning. It is a *[StallError] if the orchestrator makes no progress for 10
// seconds. Its goroutine stays then, and later calls do not replay this instance. Histories of entities are not replayed, and neither is one
// without events, of an instance that has not begun: the error is nil.
func (r *Registry) Verify(events []history.Event) error { return verify(r, events) }

// WithLogger returns a copy of r whose orchestrators log to l, unless a [Worker]
// runs them, which has its own.
func (r *Registry) WithLogger(l *slog.Logger) *Registry { return r.withLogger(l) }
