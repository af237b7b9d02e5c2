package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// CallEntity has an entity perform an operation, named by its method expression,
// and returns its result to come:
//
//	total, err := durable.CallEntity(ctx, Meter, (*Counter).Add, 5).Await()
//
// The task's error is a *[TaskFailedError] if the operation failed. What one
// orchestration sends to one entity is performed in the order in which it was sent.
//
// In a critical section ([LockEntities]) only the entities that are locked can be
// called, each by one call at a time; anything else fails the orchestration with a
// [UsageError].
//
// If the input cannot be encoded, the entity or the operation is not registered or
// the key cannot be one, nothing is called and the task is complete with the error.
func CallEntity[S, I, O any](ctx *Context, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I) *Task[O] {
	id, name, err := operationOf(ctx.registry, key, operation)
	if err != nil {
		return endedTask[O](ctx, err)
	}
	return callEntity[O](ctx, id, name, in)
}

func callEntity[O any](ctx *Context, id entity.ID, operation string, in any) *Task[O] {
	input, err := ctx.encode(in)
	if err != nil {
		return endedTask[O](ctx, fmt.Errorf("encode input of operation %s of %s: %w", operation, id, err))
	}
	t := &Task[O]{call: &entityCall{id, operation}}
	ctx.x.CallEntity(&t.f, id, operation, input)
	return t
}

// A Signaler can signal entities: an orchestrator's *[Context], and an operation's
// *[EntityContext].
type Signaler interface {
	Now() time.Time
	entities() *Registry
	signal(target entity.ID, operation string, input *string, due time.Time)
	// refuse panics with what is wrong with a call.
	refuse(call, sentence string)
}

var (
	_ Signaler = (*Context)(nil)
	_ Signaler = (*EntityContext)(nil)
)

// SignalEntity has an entity perform an operation without waiting for its result:
//
//	durable.SignalEntity(ctx, Meter, (*Counter).Add, 5, durable.SignalAfter(time.Hour))
//
// From an orchestrator it is sent when that next awaits something or returns, from
// an operation of another entity when that has succeeded. Its
// result is dropped; an operation that fails is logged.
//
// If the input cannot be encoded, the entity or the operation is not registered,
// the key cannot be one, or the entity is one that the orchestrator has locked, it
// panics with a [UsageError], which fails the orchestration or the operation.
func SignalEntity[S, I, O any](ctx Signaler, key EntityKey[S], operation func(*S, *EntityContext, I) (O, error), in I, opts ...SignalOption) {
	id, name, err := operationOf(ctx.entities(), key, operation)
	signalEntity(ctx, id, name, in, opts, err)
}

// signalEntity panics if err is not nil.
func signalEntity(ctx Signaler, id entity.ID, operation string, in any, opts []SignalOption, err error) {
	if err != nil {
		ctx.refuse("SignalEntity", "durable: SignalEntity: "+err.Error())
	}
	input, err := encode(in)
	if err != nil {
		ctx.refuse("SignalEntity", fmt.Sprintf("durable: encode input of operation %s of %s: %v", operation, id, err))
	}
	ctx.signal(id, operation, input, dueAt(ctx.Now(), opts))
}

// A SignalOption says more about a signal: [SignalAt] and [SignalAfter] make such.
type SignalOption interface{ applySignal(*signalOptions) }

type signalOptions struct {
	now, due time.Time
}

type signalOption func(*signalOptions)

func (o signalOption) applySignal(to *signalOptions) { o(to) }

// SignalAt returns the option to deliver a signal at a time. A time that has
// passed, and the zero time, mean at once.
func SignalAt(t time.Time) SignalOption { return signalOption(func(o *signalOptions) { o.due = t }) }

// SignalAfter returns the option to deliver a signal when d has passed.
func SignalAfter(d time.Duration) SignalOption {
	return signalOption(func(o *signalOptions) { o.due = o.now.Add(d) })
}

// dueAt returns when a signal is to be delivered, zero for at once.
func dueAt(now time.Time, opts []SignalOption) time.Time {
	o := signalOptions{now: now}
	for _, opt := range opts {
		opt.applySignal(&o)
	}
	if !o.due.After(now) {
		return time.Time{}
	}
	return o.due
}

// LockEntities begins a critical section: it waits until this orchestration has locked
// all of the entities. They perform no operations of others until unlock is called. unlock may be deferred:
//
//	unlock := durable.LockEntities(ctx, from, to)
//	defer unlock()
//	balance, err := durable.CallEntity(ctx, from, (*Account).Balance, durable.Void{}).Await()
//
// Several orchestrations that lock several entities do not wait for one another
// for ever, whatever the order in which they name them. The locks last until they
// are released: by unlock, or when the orchestration ends, in whichever way.
//
// In a critical section an orchestrator can do anything but begin another, start
// sub-orchestrations, signal an entity that is locked, call one that is not, or
// call one again before its last call is complete. These fail it with a
// [UsageError], and so does an entity that is not registered or has a key that
// cannot be one.
func LockEntities(ctx *Context, entities ...AnyEntity) (unlock func()) {
	if len(entities) == 0 {
		ctx.x.Refuse("LockEntities", "durable: LockEntities was called without entities")
	}
	ids := make([]entity.ID, len(entities))
	var errs []error
	for i, e := range entities {
		if e == nil {
			ctx.x.Refuse("LockEntities", "durable: LockEntities was given a nil entity")
		}
		id, err := e.entityID(ctx.registry)
		ids[i], errs = id, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		ctx.x.Refuse("LockEntities", "durable: LockEntities: "+err.Error())
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

// An EntityOperation is the wire name of an operation with the given types of
// input and output, such as one of an entity that another program implements:
//
//	const Deposit = durable.EntityOperation[int64, int64]("deposit")
//
//	balance, err := Deposit.Call(ctx, durable.EntityID{Name: "account", Key: "42"}, 100).Await()
type EntityOperation[I, O any] string

// Call has the entity perform the operation, as [CallEntity] does.
func (o EntityOperation[I, O]) Call(ctx *Context, e AnyEntity, in I) *Task[O] {
	id, err := e.entityID(ctx.registry)
	if err != nil {
		return endedTask[O](ctx, err)
	}
	return callEntity[O](ctx, id, string(o), in)
}

// SignalFrom has the entity perform the operation, as [SignalEntity] does.
func (o EntityOperation[I, O]) SignalFrom(ctx Signaler, e AnyEntity, in I, opts ...SignalOption) {
	id, err := e.entityID(ctx.entities())
	signalEntity(ctx, id, string(o), in, opts, err)
}

// An entityCall says what a task that is the call of an entity called.
type entityCall struct {
	entity    entity.ID
	operation string
}

// answerOf returns what the event says that completed the call of an entity.
func answerOf[T any](f *replay.Future, call *entityCall) (T, error) {
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

// Signal has the entity perform the operation, as [Signal] does. The client needs no
// registry for an [EntityID].
func (o EntityOperation[I, O]) Signal(ctx context.Context, c *Client, e AnyEntity, in I, opts ...SignalOption) error {
	id, err := e.entityID(c.registry)
	if err != nil {
		return err
	}
	return c.signal(ctx, id, string(o), in, opts)
}
