package memhub

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var (
	_ provider.Purger   = (*Hub)(nil)
	_ provider.Rewinder = (*Hub)(nil)
)

// Purge implements provider.Purger.
func (h *Hub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instances[id]
	if i == nil || i.state == nil && len(i.history) == 0 {
		return provider.ErrInstanceNotFound
	}
	if seen != nil && !i.state.SameAs(seen) {
		return provider.ErrInstanceChanged
	}
	i.state, i.history = nil, nil
	if i.session != nil {
		i.session.take(0)
	}
	return nil
}

// Rewind implements provider.Rewinder.
func (h *Hub) Rewind(ctx context.Context, id, reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	if i := h.instances[id]; i != nil && i.state != nil {
		current, _ := currentExecution(i.history)
		if !provider.CanRewind(i.state.Status) || i.state.Instance.ExecutionID != current.ExecutionID {
			return provider.ErrInstanceChanged
		}
	}
	plan, err := provider.PlanRewind(ctx, id, reason, now, func(_ context.Context, id string) ([]history.Event, error) {
		if i := h.instances[id]; i != nil {
			return i.history, nil
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		i := h.instances[x.Instance.InstanceID]
		i.history = x.Apply(i.history)
		if i.state != nil {
			i.state = new(*i.state)
			i.state.Status, i.state.LastUpdatedAt = history.Pending, now
		}
	}
	for _, m := range plan.Messages {
		h.post(m, now)
	}
	return nil
}

// endUnbegun ends an instance whose time has not come, as its termination asks for. It
// reports whether it did.
func (i *instance) endUnbegun(e history.Event, now time.Time) bool {
	t, ok := e.(*history.ExecutionTerminated)
	if !ok || i.state == nil || i.state.Status != history.Pending || !i.state.ScheduledAt.After(now) {
		return false
	}
	i.state = new(*i.state)
	i.state.Status, i.state.Output, i.state.LastUpdatedAt, i.state.CompletedAt = history.Terminated, t.Reason, t.Timestamp, now
	i.mail = nil
	return true
}
