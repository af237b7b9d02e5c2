package durable

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// engineFunctions implements [dispatch.AllFunctions] for a registry.
type engineFunctions Registry

func init() {
	dispatch.FunctionsOf = func(registry any) dispatch.AllFunctions { return (*engineFunctions)(registry.(*Registry)) }
}

// Orchestrator returns the orchestrator with the given wire name, for instances of the
// given version. Case is ignored. If none is registered for the version, it returns the
// one that is registered without a version.
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

// Activity returns the activity with the given wire name, as a function on encoded
// inputs and results. Case is ignored. The function does not recover panics of the
// activity.
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

// Entity returns the entity with the given wire name, as a function that performs one
// operation. Case is ignored. The function does not recover panics of the operation.
func (e *engineFunctions) Entity(name string) (dispatch.EntityCode, bool) {
	r := (*Registry)(e)
	f := r.entityNamed(name)
	if f == nil {
		return nil, false
	}
	return func(ctx context.Context, op *entity.Operation) entity.Result { return f.entity.perform(ctx, r, op) }, true
}
