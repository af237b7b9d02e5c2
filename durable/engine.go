package durable

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// engineFunctions are a registry's functions as the engine runs them.
type engineFunctions Registry

func init() {
	dispatch.FunctionsOf = func(registry any) dispatch.AllFunctions { return (*engineFunctions)(registry.(*Registry)) }
}

// Orchestrator returns the orchestrator with the given wire name for instances
// of a version, as replay runs it. Case does not matter. If none is registered
// for the version, it is the one that was registered without.
func (e *engineFunctions) Orchestrator(name, version string) (replay.Code, bool) {
	r := (*Registry)(e)
	f := r.orchestrator(name, Version(version))
	if f == nil {
		return nil, false
	}
	return func(x *replay.Execution, input *string) (*string, error) {
		ctx := &Context{x: x, registry: r, function: f}
		x.SetGuard((*foreignCalls)(ctx))
		x.LimitActions(r.worker.maxActions)
		x.SetEntityReorderWindow(r.worker.entityWindow)
		output, err := f.run(ctx, input)
		return output, r.errors.describe(err)
	}, true
}

// Activity returns the activity with the given wire name: it takes an input as
// it stands in a message, and returns a result as it does. Case does not
// matter. A panic of the activity is its caller's to handle.
func (e *engineFunctions) Activity(name string) (func(ctx context.Context, input *string) (*string, error), bool) {
	r := (*Registry)(e)
	var act func(context.Context, *string) (*string, error)
	if f := r.byName[functionName{kind: activityKind, name: strings.ToUpper(name)}]; f != nil {
		act = f.act
	} else if act = r.builtIn(name); act == nil {
		return nil, false
	}
	return func(ctx context.Context, input *string) (*string, error) {
		output, err := act(ctx, input)
		return output, r.errors.describe(err)
	}, true
}

// Entity returns the entity with the given wire name, as workers perform one
// operation of it. Case does not matter. A panic of the operation is its caller's
// to handle.
func (e *engineFunctions) Entity(name string) (dispatch.EntityCode, bool) {
	r := (*Registry)(e)
	f := r.entityNamed(name)
	if f == nil {
		return nil, false
	}
	return func(ctx context.Context, op *entity.Operation) entity.Result { return f.entity.perform(ctx, r, op) }, true
}
