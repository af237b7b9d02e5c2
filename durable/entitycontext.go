package durable

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/uuid"
)

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

// Logger returns the worker's logger with the entity's ID and the operation's name.
func (c *EntityContext) Logger() *slog.Logger {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logger == nil {
		c.logger = c.registry.baseLogger().With("instanceId", c.op.Entity.String(), "operation", c.op.Name)
	}
	return c.logger
}

// addAction adds an action, which is performed when the operation has succeeded.
func (c *EntityContext) addAction(call string, a entity.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		panic(&UsageError{Sentence: fmt.Sprintf("durable: %s was called after operation %s of %s had returned; "+
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

func (c *EntityContext) refuse(_, sentence string) { panic(&UsageError{Sentence: sentence}) }

func (c *EntityContext) entities() *Registry { return c.registry }

func (c *EntityContext) signal(target entity.ID, operation string, input *string, due time.Time) {
	c.addAction("SignalFrom", &entity.Signal{Target: target, Operation: operation, Input: input, Due: due})
}

func (c *EntityContext) start(name string, version Version, in any, opts []StartOption) (InstanceID, error) {
	if version == "" {
		version = c.registry.worker.version
	}
	o := startOptions{id: c.nextStart(), version: &version}
	for _, opt := range opts {
		opt.applyStart(&o)
	}
	if err := ValidateInstanceID(o.id); err != nil {
		return "", fmt.Errorf("start orchestration %s: %w", name, err)
	}
	if err := checkStart(name, *o.version, o.tags); err != nil {
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
// registered. The start is sent when the operation has succeeded. StartFrom returns the ID of the instance, which is generated unless opts
// include an [InstanceID]. If an instance with the ID has not ended, nothing is started
// and no error is reported.
func StartFrom[I, O any](ctx *EntityContext, orch func(*Context, I) (O, error), in I, opts ...StartOption) (InstanceID, error) {
	f, err := ctx.registry.functionOf(orchestratorKind, orch)
	if err != nil {
		return "", err
	}
	return ctx.start(f.name, f.version, in, opts)
}
