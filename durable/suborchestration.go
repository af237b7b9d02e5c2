package durable

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// SubOrchestrationOption configures a child. [InstanceID], [RetryPolicy], [Version],
// [Tags] and [FireAndForget] implement it.
type SubOrchestrationOption interface {
	applySubOrchestration(*subOrchestrationOptions)
}

type subOrchestrationOptions struct {
	id       InstanceID
	retry    *RetryPolicy
	version  *Version
	tags     map[string]string
	detached bool
}

// FireAndForget starts a child without waiting for its result. The task completes
// immediately with the zero value. If an instance with the chosen ID has not ended,
// nothing is started and no error is reported.
//
// Applies to: [CallSubOrchestrator].
const FireAndForget = fireAndForget(true)

type fireAndForget bool

func (f fireAndForget) applySubOrchestration(o *subOrchestrationOptions) { o.detached = bool(f) }

// CallSubOrchestrator starts a registered orchestrator as a child with the input in. If
// the child fails or is terminated, the task's error is a *[TaskFailedError].
//
// An [InstanceID] option sets the ID of the child. By default the ID is derived from
// the execution and the call, and each attempt of a [RetryPolicy] gets a new ID. The
// child replaces an ended instance with the same ID. If the instance has not ended, it
// continues, and the call fails with an error that wraps an *[InstanceExistsError].
//
// A [Version] option sets the version of the child. By default it is the version that
// the orchestrator is registered for, or else the worker's version. The child inherits
// the tags of its parent.
//
// If the input cannot be encoded, the orchestrator is not registered or an option is
// invalid, nothing is started. The returned task has then already completed with the
// error.
func CallSubOrchestrator[I, O any](ctx *Context, orch func(*Context, I) (O, error), in I, opts ...SubOrchestrationOption) *Task[O] {
	f, err := ctx.registry.functionOf(orchestratorKind, orch)
	if err != nil {
		return completedTask[O](ctx, err)
	}
	return callSubOrchestrator[O](ctx, f.name, f.version, in, opts)
}

// OrchestratorName is the wire name of an orchestrator with the input type I and the
// output type O. Use it for an orchestrator that another program implements:
//
//	const Ship = durable.OrchestratorName[Order, Receipt]("Ship")
type OrchestratorName[I, O any] string

// Call starts the orchestrator as a child. It behaves like [CallSubOrchestrator].
func (n OrchestratorName[I, O]) Call(ctx *Context, in I, opts ...SubOrchestrationOption) *Task[O] {
	return callSubOrchestrator[O](ctx, string(n), "", in, opts)
}

// Start starts an instance of the orchestrator. It behaves like the function [Start],
// but the client needs no registry.
func (n OrchestratorName[I, O]) Start(ctx context.Context, c *Client, in I, opts ...StartOption) (*Instance[O], error) {
	input, err := encode(in)
	if err != nil {
		return nil, fmt.Errorf("encode input of orchestrator %s: %w", string(n), err)
	}
	id, err := startInstance(ctx, c, string(n), input, opts...)
	if err != nil {
		return nil, err
	}
	return InstanceOf[O](c, id), nil
}

func callSubOrchestrator[O any](ctx *Context, name string, version Version, in any, opts []SubOrchestrationOption) *Task[O] {
	var o subOrchestrationOptions
	for _, opt := range opts {
		opt.applySubOrchestration(&o)
	}
	if err := ctx.checkChildID(o.id); err != nil {
		return completedTask[O](ctx, fmt.Errorf("call sub-orchestrator %s: %w", name, err))
	}
	input, err := ctx.encode(in)
	if err != nil {
		return completedTask[O](ctx, fmt.Errorf("encode input of sub-orchestrator %s: %w", name, err))
	}
	switch {
	case o.version != nil:
		version = *o.version
	case version == "":
		version = ctx.registry.worker.Version
	}
	if err := checkStart(name, version, o.tags); err != nil {
		return completedTask[O](ctx, fmt.Errorf("call sub-orchestrator: %w", err))
	}
	tags := maps.Clone(o.tags)
	if o.detached {
		if tags == nil {
			tags = make(map[string]string, 1)
		}
		tags[history.FireAndForget] = ""
	}
	if o.id == "" {
		ctx.x.CountChild()
	}
	child := func() *replay.CreateSubOrchestration {
		return &replay.CreateSubOrchestration{Name: name, Version: string(version), InstanceID: string(o.id), Input: input, Tags: tags}
	}
	if !o.detached {
		return withRetries[O](ctx, o.retry, func(f *replay.Future) { ctx.x.CreateSubOrchestrationWith(f, child()) })
	}
	if o.retry != nil {
		return completedTask[O](ctx, fmt.Errorf("call sub-orchestrator %s: a RetryPolicy has no effect with FireAndForget; the caller is not notified of failures", name))
	}
	ctx.x.StartOrchestration(child())
	return completedTask[O](ctx, nil)
}

// StartFrom starts an instance of the orchestrator from an entity operation. It behaves
// like the function [StartFrom].
func (n OrchestratorName[I, O]) StartFrom(ctx *EntityContext, in I, opts ...StartOption) (InstanceID, error) {
	return ctx.start(string(n), "", in, opts)
}

// ContinueAsNewOption configures [ContinueAsNew]. [Version] and [DiscardEvents]
// implement it.
type ContinueAsNewOption interface{ applyContinueAsNew(*continueAsNewOptions) }

type continueAsNewOptions struct {
	version *Version
	discard bool
}

// DiscardEvents discards external events that were received but not awaited.
//
// Applies to: [ContinueAsNew].
const DiscardEvents = discardEvents(true)

type discardEvents bool

func (d discardEvents) applyContinueAsNew(o *continueAsNewOptions) { o.discard = bool(d) }

// ContinueAsNew ends this execution of the instance and starts the next one with the
// input in and an empty history. The orchestrator must return the results of
// ContinueAsNew. If one of its branches calls ContinueAsNew, the branch may return them
// to the orchestrator, which then returns them.
//
//	return durable.ContinueAsNew(ctx, Monitor, next)
//
// External events that were not awaited are kept for the next execution, unless opts
// include [DiscardEvents]. Tasks that are not complete are abandoned.
//
// The argument self is the running orchestrator, or an orchestrator with the same name
// that is registered for another version. The instance then gets that version. A
// [Version] option takes precedence.
func ContinueAsNew[I, O any](ctx *Context, self func(*Context, I) (O, error), in I, opts ...ContinueAsNewOption) (O, error) {
	var zero O
	var o continueAsNewOptions
	if f, err := ctx.registry.functionOf(orchestratorKind, self); err == nil {
		if !strings.EqualFold(f.name, ctx.function.name) {
			return zero, fmt.Errorf("durable: orchestrator %s cannot continue as %s; an instance keeps its orchestrator", ctx.function.name, f.name)
		}
		if f.version != ctx.function.version && f.version != "" {
			o.version = &f.version
		}
	}
	for _, opt := range opts {
		opt.applyContinueAsNew(&o)
	}
	if o.version != nil {
		if err := checkStart(ctx.function.name, *o.version, nil); err != nil {
			return zero, fmt.Errorf("continue as new: %w", err)
		}
	}
	input, err := ctx.encode(in)
	if err != nil {
		return zero, fmt.Errorf("encode next input of orchestrator %s: %w", ctx.function.name, err)
	}
	return zero, ctx.x.ContinueAsNewWith(input, replay.Continuation{DiscardEvents: o.discard, NewVersion: (*string)(o.version)})
}
