package durable

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/uuid"
)

// EntityContext is what an operation of an entity knows, and how it reaches
// others. It is a context.Context, for what the operation calls; it ends when the
// worker has to stop. It is worthless when the operation has returned.
type EntityContext struct {
	stdContext
	registry *Registry
	op       *entity.Operation
	deleted  bool

	mu      sync.Mutex // protects the following
	over    bool
	actions []entity.Action
	starts  int
	logger  *slog.Logger // made when first asked for
}

type stdContext = context.Context

var _ context.Context = (*EntityContext)(nil)

// ID returns which entity it is.
func (c *EntityContext) ID() EntityID { return EntityID(c.op.Entity) }

// Operation returns the name of the operation, as it was sent.
func (c *EntityContext) Operation() string { return c.op.Name }

// HasState reports whether the entity existed before this operation.
func (c *EntityContext) HasState() bool { return c.op.State != nil }

// IsSignal reports whether nobody waits for the operation's result.
func (c *EntityContext) IsSignal() bool { return c.op.Signal }

// Caller returns the ID of the instance that sent the operation, an orchestration
// or an entity. It is empty if a client sent it.
func (c *EntityContext) Caller() InstanceID { return InstanceID(c.op.Caller) }

// Delete deletes the entity: it has no state when the operation has returned,
// whatever it left in its receiver. The next operation finds it as new.
func (c *EntityContext) Delete() { c.deleted = true }

// Now returns the time at which the operation began, UTC.
func (c *EntityContext) Now() time.Time { return c.op.Now }

// Logger returns the worker's logger, with the entity's ID and the operation. It
// is slog.Default() if [Config] has none.
func (c *EntityContext) Logger() *slog.Logger {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logger == nil {
		c.logger = c.registry.baseLogger().With("instanceId", c.op.Entity.String(), "operation", c.op.Name)
	}
	return c.logger
}

// decide keeps what the operation wants to be done when it has succeeded.
func (c *EntityContext) decide(call string, a entity.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		panic(&UsageError{Sentence: fmt.Sprintf("durable: %s was called after operation %s of %s had returned; "+
			"an EntityContext is for the operation it was given to", call, c.op.Name, c.op.Entity)})
	}
	c.actions = append(c.actions, a)
}

// end returns what the operation wants to be done.
func (c *EntityContext) end() []entity.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.actions
}

// nextStart returns the ID of an orchestration that the operation starts. It is
// the same if the operation is performed again.
func (c *EntityContext) nextStart() InstanceID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts++
	id := uuid.NewSHA1(uuidSpace, fmt.Appendf(nil, "%s_%s_%s_%d", c.op.Entity, c.op.RequestID, c.op.Name, c.starts))
	return InstanceID(fmt.Sprintf("%x", id[:]))
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
		result.Output, result.Failure = nil, replay.FailureOf(r.describe(err))
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
	return entity.Result{State: op.State, Failure: replay.FailureOf(r.describe(err))}
}
