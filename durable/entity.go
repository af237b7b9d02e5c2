package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/gofunction"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/uuid"
)

const entityKind functionKind = "entity"

// Entity describes a kind of entities and its operations for a [Registry]. An entity is
// a stored value of type S with a name and a key. Operations run on it one at a time:
//
//	type Counter struct {
//		Total int64 `json:"total"`
//	}
//
//	func (c *Counter) Add(_ *durable.EntityContext, n int64) (int64, error) {
//		c.Total += n
//		return c.Total, nil
//	}
//
//	durable.Entity("Counter", durable.Op("add", (*Counter).Add))
//
// The first operation creates an entity, with S's zero value or the value of
// [InitialState]. The entity exists until an operation calls [EntityContext.Delete].
// Its state is stored as JSON under the wire name, in lower case, and the key.
//
// Every entity has an operation named delete, which deletes it. Define your own to
// replace it.
//
// Entity panics if the name is empty or cannot be part of an instance ID. It also
// panics if two operations have names that differ only in case, or if one function has
// two names.
func Entity[S any](name string, ops ...Operation[S]) *Registration {
	t := reflect.TypeFor[S]()
	if _, err := (EntityID{Name: name}).checked(); err != nil {
		panic(fmt.Sprintf("durable: entity %q of %v cannot have this name: %v", name, t, err))
	}
	e := &entityType{
		state:      t,
		initial:    func(*EntityContext) any { return new(S) },
		operations: make(map[string]operation),
		names:      make(gofunction.Map[string]),
		decode: func(text string) (any, error) {
			s, err := decodeText[S](text)
			return &s, err
		},
		encode: func(state any) (*string, error) { return encode(*state.(*S)) },
	}
	f := &Registration{kind: entityKind, name: lowerName(name), symbol: t.String(), entity: e}
	for _, op := range ops {
		op.applyEntity(f, nil)
	}
	return f
}

// lowerName returns the form of an entity's name that is part of its ID (the
// extension's EntityScheduler/EntityId.cs).
func lowerName(name string) string { return strings.ToLower(name) }

// Operation describes entities with state S: one of their operations ([Op] or [AnyOp])
// or their initial state ([InitialState]).
type Operation[S any] interface {
	applyEntity(f *Registration, _ *S) // the second parameter binds an Operation to its type of state
}

type entityOption[S any] func(f *Registration)

func (o entityOption[S]) applyEntity(f *Registration, _ *S) { o(f) }

// Op gives a method its wire name as an operation. Case is ignored. Callers name the
// operation by its method expression, such as (*Counter).Add. The method can be a plain
// function with this signature, but not a generic one.
//
// The receiver is the entity's state and is stored afterwards. If the method returns an
// error or panics, the state is unchanged and none of its messages is sent. The caller
// gets the error as a *[TaskFailedError]. With [Config.KeepFailedEntityEffects] the
// effects are kept.
//
// The method may take long; the entity processes no other operation meanwhile. If a
// worker crashes before the new state is stored, the operation runs again on the old
// state, so its effects count once.
func Op[S, I, O any](name string, method func(*S, *EntityContext, I) (O, error)) Operation[S] {
	return entityOption[S](func(f *Registration) {
		fn := reflect.ValueOf(method)
		symbol := gofunction.Symbol(fn.Pointer())
		switch {
		case strings.TrimSpace(name) == "":
			panic(fmt.Sprintf("durable: an operation of entity %q has no name", f.name))
		case method == nil:
			panic(fmt.Sprintf("durable: operation %q of entity %q is a nil function", name, f.name))
		case gofunction.IsGeneric(symbol):
			panic(fmt.Sprintf("durable: operation %q of entity %q is the generic function %s, which is indistinguishable from its other instances; "+
				"register a plain function that calls it", name, f.name, symbol))
		}
		f.entity.add(f, name, fn, asOperation(method))
	})
}

// asOperation returns method as an operation on encoded inputs and outputs.
func asOperation[S, I, O any](method func(*S, *EntityContext, I) (O, error)) operation {
	return func(state any, ctx *EntityContext, input *string) (*string, error) {
		in, err := decode[I](input)
		if err != nil {
			return nil, NonRetryable(fmt.Errorf("decode input of operation %s of %s: %w", ctx.op.Name, ctx.op.Entity, err))
		}
		out, err := method(state.(*S), ctx, in)
		if err != nil {
			return nil, err
		}
		output, err := encode(out)
		if err != nil {
			return nil, fmt.Errorf("encode output of operation %s of %s: %w", ctx.op.Name, ctx.op.Entity, err)
		}
		return output, nil
	}
}

// AnyOp sets the function for all operations that have no [Op]. Use it for entities
// whose operations are not known at registration. The function gets the operation's
// name from [EntityContext.Operation]. The input is JSON, or nil if the caller sent
// none. A nil result means no output.
//
//	durable.Entity("Store", durable.AnyOp((*Store).Do))
func AnyOp[S any](method func(*S, *EntityContext, json.RawMessage) (any, error)) Operation[S] {
	return entityOption[S](func(f *Registration) {
		switch {
		case method == nil:
			panic(fmt.Sprintf("durable: AnyOp of entity %q is a nil function", f.name))
		case f.entity.fallback != nil:
			panic(fmt.Sprintf("durable: entity %q has two functions for AnyOp", f.name))
		}
		f.entity.fallback = asOperation(method)
	})
}

// InitialState sets the state of an entity before its first operation. The default is
// S's zero value. The function initial must return the same value each time it is
// called for an entity.
func InitialState[S any](initial func(EntityID) S) Operation[S] {
	return entityOption[S](func(f *Registration) {
		if initial == nil {
			panic(fmt.Sprintf("durable: the initial state of entity %q is a nil function", f.name))
		}
		f.entity.initial = func(ctx *EntityContext) any { return new(initial(ctx.ID())) }
	})
}

// entityType describes the entities of one name.
type entityType struct {
	state      reflect.Type
	initial    func(*EntityContext) any // returns a pointer to a state
	decode     func(text string) (any, error)
	encode     func(state any) (*string, error)
	operations map[string]operation   // by name in upper case
	names      gofunction.Map[string] // names of operations
	fallback   operation              // nil without an AnyOp option
}

// operation changes the state that the pointer state refers to, and returns its output.
type operation func(state any, ctx *EntityContext, input *string) (*string, error)

func (e *entityType) add(f *Registration, name string, fn reflect.Value, op operation) {
	key := strings.ToUpper(name)
	if e.operations[key] != nil {
		panic(fmt.Sprintf("durable: entity %q has two operations named %q; case is ignored", f.name, name))
	}
	if other, ok := e.names.Get(fn); ok {
		panic(fmt.Sprintf("durable: %s is operation %q of entity %q and also %q; a function can have only one name, and %s",
			gofunction.Symbol(fn.Pointer()), other, f.name, name, gofunction.ClosureIdentity))
	}
	e.operations[key] = op
	e.names.Put(fn, name)
}

// deleteOperation is an operation of every entity (durabletask-dotnet's TaskEntity.cs,
// TryDispatchImplicit).
const deleteOperation = "delete"

// isImplicitDelete reports whether name is the implicit delete operation, which the entity does
// not define itself. It runs without the state, so an entity can be deleted even if its
// state cannot be decoded.
func (e *entityType) isImplicitDelete(name string) bool {
	return strings.EqualFold(name, deleteOperation) && e.operations[strings.ToUpper(name)] == nil
}

// find returns the operation with the given name, or nil.
func (e *entityType) find(name string) operation {
	if op := e.operations[strings.ToUpper(name)]; op != nil {
		return op
	}
	return e.fallback
}

// OperationNotFoundError means that an entity has no operation with the given name. It
// is in the chain of the [TaskFailedError] that the caller gets.
type OperationNotFoundError struct {
	Entity    EntityID
	Operation string
}

// Error names the operation and the entity.
func (e *OperationNotFoundError) Error() string {
	return fmt.Sprintf("entity %q has no operation %q", e.Entity.Name, e.Operation)
}

// operationOf returns the ID of the entity with the given key and the name of the
// operation that method implements.
func operationOf[S, I, O any](r *Registry, key EntityKey[S], method func(*S, *EntityContext, I) (O, error)) (entity.ID, string, error) {
	id, err := key.entityID(r)
	if err != nil {
		return id, "", err
	}
	if method == nil {
		return id, "", fmt.Errorf("durable: operation of entity %q is a nil %T", id.Name, method)
	}
	f, fn := r.byState[reflect.TypeFor[S]()], reflect.ValueOf(method)
	if name, ok := f.entity.names.Get(fn); ok {
		return id, name, nil
	}
	return id, "", fmt.Errorf("durable: %s is not an operation of entity %q; give it a name with durable.Op", gofunction.Symbol(fn.Pointer()), f.name)
}

// perform runs one operation.
func (e *entityType) perform(std context.Context, r *Registry, op *entity.Operation) entity.Result {
	ctx := &EntityContext{stdContext: std, registry: r, op: op}
	defer ctx.end()
	if e.isImplicitDelete(op.Name) {
		return entity.Result{}
	}
	run := e.find(op.Name)
	if run == nil {
		return failed(r, op, &OperationNotFoundError{ctx.ID(), op.Name})
	}
	state, err := e.restore(ctx)
	if err != nil {
		return failed(r, op, NonRetryable(err))
	}
	output, err := run(state, ctx, op.Input)
	result := entity.Result{Output: output, Actions: ctx.end()}
	if err != nil {
		result.Output, result.Failure = nil, replay.FailureOf(r.errors.describe(err))
	}
	if ctx.deleted {
		return result
	}
	if result.State, err = e.encode(state); err != nil {
		return failed(r, op, fmt.Errorf("encode state of %s: %w", op.Entity, err))
	}
	return result
}

// restore returns the stored state of the entity, or its initial state.
func (e *entityType) restore(ctx *EntityContext) (any, error) {
	if ctx.op.State == nil {
		return e.initial(ctx), nil
	}
	state, err := e.decode(*ctx.op.State)
	if err != nil {
		return nil, fmt.Errorf("decode state of %s: %w", ctx.op.Entity, err)
	}
	return state, nil
}

// failed returns the result of an operation that failed without effects.
func failed(r *Registry, op *entity.Operation, err error) entity.Result {
	return entity.Result{State: op.State, Failure: replay.FailureOf(r.errors.describe(err))}
}

// ReplaceOperation returns a copy of r in which stub replaces an operation of an
// entity. The operation must be registered. Use it in tests, like [Registry.Replace].
func ReplaceOperation[S, I, O any](r *Registry, operation, stub func(*S, *EntityContext, I) (O, error)) (*Registry, error) {
	id, name, err := operationOf(r, EntityKey[S](""), operation)
	if err != nil {
		return nil, err
	}
	f := new(*r.entityNamed(id.Name))
	f.entity = new(*f.entity)
	f.entity.operations = maps.Clone(f.entity.operations)
	f.entity.operations[strings.ToUpper(name)] = asOperation(stub)
	other := r.Replace(f)
	other.byState = maps.Clone(r.byState)
	other.byState[f.entity.state] = f
	return other, nil
}

// EntityContext gives an operation access to its entity, and lets it signal other
// entities. It is a context.Context for calls that the operation makes, and is canceled
// when the worker must stop. Do not use it after the operation has returned.
type EntityContext struct {
	stdContext
	registry *Registry
	op       *entity.Operation
	deleted  bool

	mu      sync.Mutex // guards the fields below
	ended   bool
	actions []entity.Action
	starts  int
	logger  *slog.Logger // created by the first call of Logger
}

type stdContext = context.Context

var _ context.Context = (*EntityContext)(nil)

// ID returns the ID of the entity.
func (c *EntityContext) ID() EntityID { return EntityID(c.op.Entity) }

// Operation returns the name of the operation as its sender spelled it.
func (c *EntityContext) Operation() string { return c.op.Name }

// HasState reports whether the entity existed before this operation.
func (c *EntityContext) HasState() bool { return c.op.State != nil }

// IsSignal reports whether the operation is a signal. The result of a signal is
// discarded.
func (c *EntityContext) IsSignal() bool { return c.op.Signal }

// Caller returns the ID of the orchestration or entity that sent the operation. It is
// empty if a client sent it.
func (c *EntityContext) Caller() InstanceID { return InstanceID(c.op.Caller) }

// Delete deletes the entity when the operation has returned, whatever the receiver
// contains. The next operation creates the entity again.
func (c *EntityContext) Delete() { c.deleted = true }

// Now returns the time at which the operation started, in UTC.
func (c *EntityContext) Now() time.Time { return c.op.Now }

// Logger returns the worker's logger with the entity's ID and name, the operation's name
// and the trace ID.
func (c *EntityContext) Logger() *slog.Logger {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logger == nil {
		c.logger = c.registry.baseLogger().With("instanceId", c.op.Entity.String(), "name", c.op.Entity.Name, "operation", c.op.Name)
		if id := c.op.Trace.Parent.TraceID(); id != "" {
			c.logger = c.logger.With("traceId", id)
		}
	}
	return c.logger
}

// addAction adds an action, which is performed when the operation has succeeded.
func (c *EntityContext) addAction(call string, a entity.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		panic(&UsageError{Message: fmt.Sprintf("durable: %s was called after operation %s of %s had returned; "+
			"use an EntityContext only during its operation", call, c.op.Name, c.op.Entity)})
	}
	c.actions = append(c.actions, a)
}

// end closes the context and returns the actions of the operation.
func (c *EntityContext) end() []entity.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.actions
}

// nextStart returns the ID of the next orchestration that the operation starts. It is
// the same if the operation runs again.
func (c *EntityContext) nextStart() InstanceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts++
	id := uuid.NewSHA1(uuidSpace, fmt.Appendf(nil, "%s_%s_%s_%d", c.op.Entity, c.op.RequestID, c.op.Name, c.starts))
	return InstanceID(fmt.Sprintf("%x", id[:]))
}

func (c *EntityContext) refuse(_, sentence string) { panic(&UsageError{Message: sentence}) }

func (c *EntityContext) entities() *Registry { return c.registry }

func (c *EntityContext) signal(target entity.ID, operation string, input *string, due time.Time) {
	c.addAction("SignalFrom", &entity.Signal{Target: target, Operation: operation, Input: input, Due: due})
}

func (c *EntityContext) start(name string, version Version, in any, opts []StartOption) (InstanceID, error) {
	if version == "" {
		version = c.registry.worker.Version
	}
	o := startOptions{id: c.nextStart(), version: &version}
	for _, opt := range opts {
		opt.applyStart(&o)
	}
	if err := ValidateInstanceID(o.id); err != nil {
		return "", fmt.Errorf("start orchestration %s: %w", name, err)
	}
	if err := errors.Join(checkStart(name, *o.version, o.tags), checkDue(o.at)); err != nil {
		return "", fmt.Errorf("start orchestration: %w", err)
	}
	input, err := encode(in)
	if err != nil {
		return "", fmt.Errorf("encode input of orchestrator %s: %w", name, err)
	}
	s := &entity.Start{Name: name, Version: string(*o.version), InstanceID: string(o.id), Input: input, Tags: o.tags}
	if o.at.After(c.Now()) {
		s.Due = o.at
	}
	c.addAction("StartFrom", s)
	return o.id, nil
}

// StartFrom starts an orchestration from an entity operation. The orchestrator must be
// registered. The start is sent when the operation has succeeded. StartFrom returns the
// ID of the instance, which is generated unless opts include an [InstanceID]. If an
// instance with the ID has not ended, nothing is started and no error is reported.
func StartFrom[I, O any](ctx *EntityContext, orch func(*Context, I) (O, error), in I, opts ...StartOption) (InstanceID, error) {
	f, err := ctx.registry.functionOf(orchestratorKind, orch)
	if err != nil {
		return "", err
	}
	return ctx.start(f.name, f.version, in, opts)
}
