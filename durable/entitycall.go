package durable

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// EntityKey is the key of an entity whose state has type S. The type selects the kind
// of entities, the key selects one of them:
//
//	const Meter = durable.EntityKey[Counter]("meter-7")
//
// Keys are case-sensitive and may be empty. They may contain the characters that are
// valid in instance IDs.
type EntityKey[S any] string

// EntityID identifies an entity by name and key. Use it for an entity that another
// program implements. Names are case-insensitive.
type EntityID struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// ParseEntityID parses the instance ID of an entity, such as @counter@meter-7.
func ParseEntityID(id InstanceID) (EntityID, error) {
	parsed, err := entity.ParseID(string(id))
	if err != nil {
		return EntityID{}, &InstanceIDError{ID: id, Reason: fmt.Sprintf("%q is not the ID of an entity; want @name@key.", id)}
	}
	return EntityID(parsed), nil
}

// InstanceID returns the ID of the instance that stores the entity, such as
// @counter@meter-7.
func (id EntityID) InstanceID() InstanceID {
	return InstanceID(entity.ID{Name: lowerName(id.Name), Key: id.Key}.String())
}

// String returns the instance ID.
func (id EntityID) String() string { return string(id.InstanceID()) }

// AnyEntity identifies an entity. [EntityKey] and [EntityID] implement it.
type AnyEntity interface {
	// entityID returns the ID of the entity. An EntityKey takes the name from r.
	entityID(r *Registry) (entity.ID, error)
}

var (
	_ AnyEntity = EntityID{}
	_ AnyEntity = EntityKey[struct{}]("")
)

func (id EntityID) entityID(*Registry) (entity.ID, error) { return id.checked() }

func (k EntityKey[S]) entityID(r *Registry) (entity.ID, error) {
	f, err := r.entityOf(reflect.TypeFor[S]())
	if err != nil {
		return entity.ID{}, err
	}
	return EntityID{f.name, string(k)}.checked()
}

// checked returns the ID, or an *[InstanceIDError] if it is invalid.
func (id EntityID) checked() (entity.ID, error) {
	reason := invalidIDReason(string(id.InstanceID()))
	if id.Name == "" {
		reason = "Entity names must not be empty."
	}
	valid, err := entity.NewID(id.Name, id.Key)
	if err != nil && reason == "" {
		reason = fmt.Sprintf("Entity names must not contain @; %q does.", id.Name)
	}
	if reason != "" {
		return entity.ID{}, &InstanceIDError{ID: id.InstanceID(), Reason: reason}
	}
	return valid, nil
}

// CallEntity calls an operation of an entity and returns its future result. The
// operation is named by its method expression:
//
//	total, err := durable.CallEntity(ctx, Meter, (*Counter).Add, 5).Await()
//
// If the operation fails, the task's error is a *[TaskFailedError]. An entity processes
// the messages of one orchestration in the order in which they were sent.
//
// In a critical section ([LockEntities]) an orchestrator can call only the locked
// entities, and each one by one call at a time. Other calls fail the orchestration with
// a [UsageError].
//
// If the input cannot be encoded, the entity or the operation is not registered or the
// key is invalid, nothing is called. The returned task has then already completed with
// the error.
func CallEntity[S, I, O any](ctx *Context, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I) *Task[O] {
	id, name, err := operationOf(ctx.registry, key, operation)
	if err != nil {
		return completedTask[O](ctx, err)
	}
	return callEntity[O](ctx, id, name, in)
}

func callEntity[O any](ctx *Context, id entity.ID, operation string, in any) *Task[O] {
	input, err := ctx.encode(in)
	if err != nil {
		return completedTask[O](ctx, fmt.Errorf("encode input of operation %s of %s: %w", operation, id, err))
	}
	t := &Task[O]{call: &entityCall{id, operation}}
	ctx.x.CallEntity(&t.f, id, operation, input)
	return t
}

// Signaler can signal entities. The *[Context] of an orchestrator and the
// *[EntityContext] of an operation implement it.
type Signaler interface {
	// Now returns the current time of the orchestration or the operation.
	Now() time.Time
	entities() *Registry
	signal(target entity.ID, operation string, input *string, due time.Time)
	// refuse panics with a [UsageError] that has the sentence.
	refuse(call, sentence string)
}

var (
	_ Signaler = (*Context)(nil)
	_ Signaler = (*EntityContext)(nil)
)

// SignalFrom sends an entity a signal to perform an operation. It does not wait for the
// result:
//
//	durable.SignalFrom(ctx, Meter, (*Counter).Add, 5, durable.SignalAfter(time.Hour))
//
// An orchestrator's signal is sent when the orchestrator next awaits a task or returns.
// An operation's signal is sent when the operation has succeeded. The result of the
// signaled operation is discarded; a failure is logged.
//
// SignalFrom panics with a [UsageError] if the input cannot be encoded, or if the
// entity or the operation is not registered. It also panics if the key or the time is
// invalid, or if the orchestrator has locked the entity. The panic fails the
// orchestration or the operation.
func SignalFrom[S, I, O any](ctx Signaler, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I, opts ...SignalOption) {
	id, name, err := operationOf(ctx.entities(), key, operation)
	signalFrom(ctx, id, name, in, opts, err)
}

// signalFrom sends a signal. It refuses the call if err is not nil.
func signalFrom(ctx Signaler, id entity.ID, operation string, in any, opts []SignalOption, err error) {
	if err != nil {
		ctx.refuse("SignalFrom", "durable: SignalFrom: "+err.Error())
	}
	input, err := encode(in)
	if err != nil {
		ctx.refuse("SignalFrom", fmt.Sprintf("durable: encode input of operation %s of %s: %v", operation, id, err))
	}
	due, err := dueAt(ctx.Now(), opts)
	if err != nil {
		ctx.refuse("SignalFrom", fmt.Sprintf("durable: signal operation %s of %s: %v", operation, id, err))
	}
	ctx.signal(id, operation, input, due)
}

// SignalOption configures a signal. [SignalAt] and [SignalAfter] return one.
type SignalOption interface{ applySignal(*signalOptions) }

type signalOptions struct {
	now, due time.Time
}

type signalOption func(*signalOptions)

func (o signalOption) applySignal(to *signalOptions) { o(to) }

// SignalAt returns the option to deliver a signal at time t. The zero time, or a time
// in the past, means immediately. A time after the year 9999 is an error.
//
// Applies to: [Signal], [SignalFrom], [Client.SignalEntity].
func SignalAt(t time.Time) SignalOption { return signalOption(func(o *signalOptions) { o.due = t }) }

// SignalAfter returns the option to deliver a signal after d.
//
// Applies to: [Signal], [SignalFrom], [Client.SignalEntity].
func SignalAfter(d time.Duration) SignalOption {
	return signalOption(func(o *signalOptions) { o.due = o.now.Add(d) })
}

// dueAt returns the delivery time of a signal, or the zero time for immediate delivery.
func dueAt(now time.Time, opts []SignalOption) (time.Time, error) {
	o := signalOptions{now: now}
	for _, opt := range opts {
		opt.applySignal(&o)
	}
	if !o.due.After(now) {
		return time.Time{}, nil
	}
	return o.due, checkDue(o.due)
}

// LockEntities starts a critical section. It waits until this orchestration has locked
// all the entities. Until unlock is called, they process no operations of other
// callers. The call of unlock may be deferred:
//
//	unlock := durable.LockEntities(ctx, from, to)
//	defer unlock()
//	balance, err := durable.CallEntity(ctx, from, (*Account).Balance, durable.Void{}).Await()
//
// Orchestrations that lock several entities cannot deadlock, whatever the order of
// their arguments. The locks are released by unlock, or when the orchestration ends for
// any reason.
//
// In a critical section an orchestrator must not do any of the following. Each fails
// the orchestration with a [UsageError]:
//
//   - start another critical section or a sub-orchestration
//   - signal a locked entity
//   - call an entity that is not locked
//   - call an entity before its previous call is complete
//
// An entity that is not registered or has an invalid key fails the orchestration too.
func LockEntities(ctx *Context, entities ...AnyEntity) (unlock func()) {
	if len(entities) == 0 {
		ctx.x.PanicWithUsageError("LockEntities", "durable: LockEntities was called without entities")
	}
	ids := make([]entity.ID, len(entities))
	var errs []error
	for i, e := range entities {
		if e == nil {
			ctx.x.PanicWithUsageError("LockEntities", "durable: LockEntities was given a nil entity")
		}
		id, err := e.entityID(ctx.registry)
		ids[i], errs = id, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		ctx.x.PanicWithUsageError("LockEntities", "durable: LockEntities: "+err.Error())
	}
	locked := new(replay.Future)
	ctx.x.LockEntities(locked, ids)
	locked.Await()
	released := false
	return func() {
		if !released {
			released = true
			ctx.x.Unlock()
		}
	}
}

// EntityOperation is the wire name of an operation with the input type I and the output
// type O. Use it for an entity that another program implements:
//
//	const Deposit = durable.EntityOperation[int64, int64]("deposit")
//
//	balance, err := Deposit.Call(ctx, durable.EntityID{Name: "account", Key: "42"}, 100).Await()
type EntityOperation[I, O any] string

// Call calls the operation of the entity. It behaves like [CallEntity].
func (o EntityOperation[I, O]) Call(ctx *Context, e AnyEntity, in I) *Task[O] {
	id, err := e.entityID(ctx.registry)
	if err != nil {
		return completedTask[O](ctx, err)
	}
	return callEntity[O](ctx, id, string(o), in)
}

// SignalFrom signals the operation of the entity. It behaves like the function
// [SignalFrom].
func (o EntityOperation[I, O]) SignalFrom(ctx Signaler, e AnyEntity, in I, opts ...SignalOption) {
	id, err := e.entityID(ctx.entities())
	signalFrom(ctx, id, string(o), in, opts, err)
}

// entityCall identifies the operation that a task calls.
type entityCall struct {
	entity    entity.ID
	operation string
}

// entityResult returns the result of a completed entity call.
func entityResult[T any](f *replay.Future, call *entityCall) (T, error) {
	var zero T
	answer, err := f.EntityResponse()
	if err != nil {
		return zero, err
	}
	if answer.Failure != nil {
		e := &TaskFailedError{Name: call.operation, TaskID: f.ID(), Entity: EntityID(call.entity)}
		e.set(contextOf(f).registry, nil, nil, answer.Failure)
		return zero, e
	}
	v, err := decode[T](answer.Result)
	if err != nil {
		return zero, fmt.Errorf("decode result of operation %s of %s: %w", call.operation, call.entity, err)
	}
	return v, nil
}

// Signal signals the operation of the entity from a client. It behaves like the
// function [Signal]. With an [EntityID] the client needs no registry.
func (o EntityOperation[I, O]) Signal(ctx context.Context, c *Client, e AnyEntity, in I, opts ...SignalOption) error {
	id, err := e.entityID(c.registry)
	if err != nil {
		return err
	}
	return signalEntity(ctx, c, id, string(o), in, opts)
}
