package durable

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A family is what is known of the children that an instance's current
// execution has started, whether they have ended or not. An ID that the instance
// wanted to give to a child but that belongs to another instance is not among
// them.
type family struct {
	children []InstanceID
	// unborn are those without stored records: they have not begun, or were purged.
	unborn []InstanceID
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

// add adds an instance to f if its current execution was started by the
// given parent, or if it may yet be.
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
	f.unborn = append(f.unborn, InstanceID(id))
	return nil
}
