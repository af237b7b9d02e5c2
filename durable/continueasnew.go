package durable

import (
	"fmt"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// A ContinueAsNewOption changes how an instance continues as new: [Version] and
// [DiscardEvents] are such.
type ContinueAsNewOption interface{ applyContinueAsNew(*continueAsNewOptions) }

type continueAsNewOptions struct {
	version *Version
	discard bool
}

// DiscardEvents is the [ContinueAsNewOption] that leaves the external events
// behind which were not awaited.
type DiscardEvents struct{}

func (DiscardEvents) applyContinueAsNew(o *continueAsNewOptions) { o.discard = true }

// ContinueAsNew ends this execution of the instance and begins the next, with
// the given input and an empty history. The orchestrator must return what it
// returns; its own branches may as well, for the orchestrator to return on.
//
//	return durable.ContinueAsNew(ctx, Monitor, next)
//
// External events that were not awaited are kept for the next execution, unless
// [DiscardEvents] is among opts. Tasks that are not complete are forgotten.
//
// Self must be the orchestrator that runs. It may be one that has the same name
// and is registered for another version, which the instance then has from there
// on. A [Version] among opts counts before that.
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
