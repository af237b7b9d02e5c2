package memhub

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// activity is the lock on an activity.
type activity struct {
	worker  *Worker
	m       *message
	revoked bool
}

var _ provider.ActivityLock = (*activity)(nil)

// Complete implements provider.ActivityLock.
func (a *activity) Complete(ctx context.Context, result history.Event) error {
	h := a.worker.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case a.revoked:
		return errKilled
	case h.happens(CompleteFails):
		return ErrInjected
	case h.happens(CompletionLost):
		a.m.backOff(h.Now(), nil)
		a.end()
		return nil
	}
	h.post(provider.TaskMessage{Event: result, Target: a.m.Target}, h.Now())
	if h.happens(CompleteReplyLost) {
		return ErrInjected
	}
	h.activities = remove(h.activities, func(m *message) bool { return m == a.m })
	a.end()
	return nil
}

// Abandon implements provider.ActivityLock.
func (a *activity) Abandon(ctx context.Context, cause error) error {
	h := a.worker.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.revoked {
		return errKilled
	}
	a.m.backOff(h.Now(), cause)
	a.end()
	return nil
}

// end releases the lock. The caller holds mu.
func (a *activity) end() {
	a.revoked = true
	delete(a.worker.activities, a)
	a.worker.hub.notify()
}
