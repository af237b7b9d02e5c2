package durable

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

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
	return zero, ctx.x.ContinueAsNewAs(input, replay.Continuation{DiscardEvents: o.discard, NewVersion: (*string)(o.version)})
}
