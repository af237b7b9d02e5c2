package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// family lists the children that the current execution of an instance has started,
// including children that have ended. It excludes an ID that the instance requested for
// a child if another instance has that ID.
type family struct {
	children []InstanceID
	// unstarted lists children without stored records: they have not started, or were
	// purged.
	unstarted []InstanceID
}

func familyOf(ctx context.Context, hub provider.Client, parent InstanceID) (family, error) {
	events, err := hub.History(ctx, string(parent))
	if err != nil {
		return family{}, err
	}
	var f family
	var start *history.ExecutionStarted
	seen := map[string]bool{}
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			start = e
		case *history.SubOrchestrationInstanceCreated:
			if start == nil || seen[e.InstanceID] {
				continue
			}
			seen[e.InstanceID] = true
			if err := f.add(ctx, hub, e.InstanceID, start.Instance); err != nil {
				return family{}, fmt.Errorf("child %s: %w", e.InstanceID, err)
			}
		}
	}
	return f, nil
}

// add adds an instance to f if the parent started its current execution, or may still
// start it.
func (f *family) add(ctx context.Context, hub provider.Client, id string, parent history.OrchestrationInstance) error {
	events, err := hub.History(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range events {
		if start, ok := e.(*history.ExecutionStarted); ok {
			if start.Parent != nil && start.Parent.Instance == parent {
				f.children = append(f.children, InstanceID(id))
			}
			return nil
		}
	}
	f.unstarted = append(f.unstarted, InstanceID(id))
	return nil
}
