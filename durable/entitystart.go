package durable

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// StartOrchestration starts an orchestration from an operation of an entity, with
// an orchestrator of the registry, when the operation has succeeded. It returns the
// instance's ID, which is random unless an [InstanceID] is among opts. An instance
// that has the ID and has not ended goes on, and nothing is started; nobody is told.
func StartOrchestration[I, O any](ctx *EntityContext, orch func(*Context, I) (O, error), in I, opts ...StartOption) (InstanceID, error) {
	f, err := ctx.registry.functionOf(orchestratorKind, orch)
	if err != nil {
		return "", err
	}
	return ctx.start(f.name, f.version, in, opts)
}

// StartFrom starts an instance of the orchestrator from an operation of an entity,
// as [StartOrchestration] does.
func (n OrchestratorName[I, O]) StartFrom(ctx *EntityContext, in I, opts ...StartOption) (InstanceID, error) {
	return ctx.start(string(n), "", in, opts)
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
	c.decide("StartOrchestration", s)
	return o.id, nil
}
