package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

const entityKind functionKind = "entity"

// Entity gives a kind of entities its name and says what can be done to them. An
// entity is a value of type S with a name and a key, which is stored, and on which
// operations are performed one at a time:
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
// An entity comes into being with its first operation, as S's zero value or what
// [InitialState] says, and goes when an operation calls [EntityContext.Delete].
// What it is in between is JSON, as the entity of the wire name, in lower case, and
// the key.
//
// Of the operations, an entity has one named delete whether it is given or not: it
// deletes the entity.
//
// It panics if the name is empty or cannot be part of an instance's ID, if two
// operations have names that differ in nothing but case, or one function has two.
func Entity[S any](name string, ops ...Operation[S]) *Function {
	t := reflect.TypeFor[S]()
	if _, err := (EntityID{Name: name}).checked(); err != nil {
		panic(fmt.Sprintf("durable: entity %q of %v cannot have this name: %v", name, t, err))
	}
	e := &entityType{
		state:      t,
		initial:    func(*EntityContext) any { return new(S) },
		operations: make(map[string]operation),
		names:      make(byFunction[string]),
		decode: func(text string) (any, error) {
			s, err := decodeText[S](text)
			return &s, err
		},
		encode: func(state any) (*string, error) { return encode(*state.(*S)) },
	}
	f := &Function{kind: entityKind, name: lowerName(name), symbol: t.String(), entity: e}
	for _, op := range ops {
		op.applyEntity(f)
	}
	return f
}

// lowerName returns the form in which an entity's name stands in its ID (the
// extension's EntityScheduler/EntityId.cs).
func lowerName(name string) string { return strings.ToLower(name) }

// An Operation describes entities with state S: an operation that they have, by [Op] or
// [AnyOp], or their first state, by [InitialState].
type Operation[S any] interface {
	applyEntity(f *Function)
	of(*S) // tells the operations of one type from those of another
}

type entityOption[S any] func(f *Function)

func (o entityOption[S]) applyEntity(f *Function) { o(f) }
func (entityOption[S]) of(*S)                     {}

// Op gives a method the name that it has on the wire as an operation. Case does
// not matter in it. Calls name it by the method expression, such as
// (*Counter).Add. The method may be any function of this form that is not generic.
//
// What it leaves in its receiver is the entity's state from then on. If it returns
// an error or panics, nothing is changed, none of its messages is sent, and the caller
// gets the error as that of a failed activity. (With
// [Config.KeepFailedEntityEffects] what it did counts all the same.)
//
// It may do anything that takes time; nothing else happens to the entity in the
// meantime. It is performed again if a worker is lost before the new state was
// stored, which then is as if it had been performed once.
func Op[S, I, O any](name string, method func(*S, *EntityContext, I) (O, error)) Operation[S] {
	return entityOption[S](func(f *Function) {
		fn := reflect.ValueOf(method)
		symbol := symbolOf(fn.Pointer())
		switch {
		case strings.TrimSpace(name) == "":
			panic(fmt.Sprintf("durable: an operation of entity %q was given no name", f.name))
		case method == nil:
			panic(fmt.Sprintf("durable: operation %q of entity %q is a nil function", name, f.name))
		case isGeneric(symbol):
			panic(fmt.Sprintf("durable: operation %q of entity %q is the generic function %s, which looks the same as its other instances; "+
				"register a plain function that calls it", name, f.name, symbol))
		}
		f.entity.add(f, name, fn, performs(method))
	})
}

// performs returns method as it is performed on the state of an entity.
func performs[S, I, O any](method func(*S, *EntityContext, I) (O, error)) operation {
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

// AnyOp has a function perform all operations that have no [Op], for entities
// whose operations are not known before: [EntityContext.Operation] tells which is
// meant. The input is JSON, nil if there is none; what is returned becomes the
// output, nil being none.
//
//	durable.Entity("Store", durable.AnyOp((*Store).Do))
func AnyOp[S any](method func(*S, *EntityContext, json.RawMessage) (any, error)) Operation[S] {
	return entityOption[S](func(f *Function) {
		switch {
		case method == nil:
			panic(fmt.Sprintf("durable: entity %q was given a nil function to perform any operation", f.name))
		case f.entity.fallback != nil:
			panic(fmt.Sprintf("durable: entity %q was given two functions to perform any operation", f.name))
		}
		f.entity.fallback = performs(method)
	})
}

// InitialState says what an entity is before its first operation, in the place of
// S's zero value. Initial must return the same whenever it is called for an entity.
func InitialState[S any](initial func(EntityID) S) Operation[S] {
	return entityOption[S](func(f *Function) {
		if initial == nil {
			panic(fmt.Sprintf("durable: the initial state of entity %q is a nil function", f.name))
		}
		f.entity.initial = func(ctx *EntityContext) any { return new(initial(ctx.ID())) }
	})
}

// An entityType is what is known of the entities of one name.
type entityType struct {
	state      reflect.Type
	initial    func(*EntityContext) any // a pointer to a state
	decode     func(text string) (any, error)
	encode     func(state any) (*string, error)
	operations map[string]operation // by name in upper case
	names      byFunction[string]   // of operations
	fallback   operation            // nil if there is none
}

// An operation changes the state that state points at, and returns its output.
type operation func(state any, ctx *EntityContext, input *string) (*string, error)

func (e *entityType) add(f *Function, name string, fn reflect.Value, op operation) {
	key := strings.ToUpper(name)
	if e.operations[key] != nil {
		panic(fmt.Sprintf("durable: entity %q has two operations named %q: case does not matter", f.name, name))
	}
	if other, ok := e.names.get(fn); ok {
		panic(fmt.Sprintf("durable: %s is operation %q of entity %q and also %q; one function can have one name, and %s",
			symbolOf(fn.Pointer()), other, f.name, name, oneLiteral))
	}
	e.operations[key] = op
	e.names.put(fn, name)
}

// deleteOperation is an operation of every entity (durabletask-dotnet's TaskEntity.cs,
// TryDispatchImplicit).
const deleteOperation = "delete"

// deletes reports whether the operation with the given name is the one that every
// entity has and this one did not define. It needs no state, so that an entity can
// be deleted whatever is stored of it.
func (e *entityType) deletes(name string) bool {
	return strings.EqualFold(name, deleteOperation) && e.operations[strings.ToUpper(name)] == nil
}

// find returns the operation with the given name, nil if there is none.
func (e *entityType) find(name string) operation {
	if op := e.operations[strings.ToUpper(name)]; op != nil {
		return op
	}
	return e.fallback
}

// An OperationNotFoundError says that an entity has no operation of a name. A call
// of one fails with a [TaskFailedError] in which errors.As finds it.
type OperationNotFoundError struct {
	Entity    EntityID
	Operation string
}

// Error names the operation and the entity.
func (e *OperationNotFoundError) Error() string {
	return fmt.Sprintf("entity %q has no operation %q", e.Entity.Name, e.Operation)
}

// operationOf returns the name of the operation that method is registered as, and
// the ID of the entity with the given key.
func operationOf[S, I, O any](r *Registry, key EntityKey[S], method func(*S, *EntityContext, I) (O, error)) (entity.ID, string, error) {
	id, err := key.entityID(r)
	if err != nil {
		return id, "", err
	}
	if method == nil {
		return id, "", fmt.Errorf("durable: operation of entity %q is a nil %T", id.Name, method)
	}
	f, fn := r.byState[reflect.TypeFor[S]()], reflect.ValueOf(method)
	if name, ok := f.entity.names.get(fn); ok {
		return id, name, nil
	}
	return id, "", fmt.Errorf("durable: %s is not an operation of entity %q; give it a name with durable.Op", symbolOf(fn.Pointer()), f.name)
}

// perform performs an operation.
func (e *entityType) perform(std context.Context, r *Registry, op *entity.Operation) entity.Result {
	ctx := &EntityContext{stdContext: std, registry: r, op: op}
	defer ctx.end()
	if e.deletes(op.Name) {
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

// restore returns the state of the entity, or the one that it begins with.
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

// failed returns the result of an operation that did nothing.
func failed(r *Registry, op *entity.Operation, err error) entity.Result {
	return entity.Result{State: op.State, Failure: replay.FailureOf(r.errors.describe(err))}
}

// ReplaceOperation returns a copy of r in which stub is performed in the place of
// an operation of an entity, which must be registered. It is for tests, as
// [Registry.Replace] is.
func ReplaceOperation[S, I, O any](r *Registry, operation, stub func(*S, *EntityContext, I) (O, error)) (*Registry, error) {
	id, name, err := operationOf(r, EntityKey[S](""), operation)
	if err != nil {
		return nil, err
	}
	f := new(*r.entityNamed(id.Name))
	f.entity = new(*f.entity)
	f.entity.operations = maps.Clone(f.entity.operations)
	f.entity.operations[strings.ToUpper(name)] = performs(stub)
	other := r.Replace(f)
	other.byState = maps.Clone(r.byState)
	other.byState[f.entity.state] = f
	return other, nil
}
