package memhub

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An activity is one that was handed out.
type activity struct {
	worker *Worker
	m      *message
	lost   bool
}

var _ provider.ActivityLock = (*activity)(nil)

// nextActivity hands out an activity. If there is none it returns when to look
// again. The caller holds mu.
func (h *Hub) nextActivity(w *Worker) (*provider.ActivityWorkItem, time.Time) {
	visible, next := due(h.activities, h.Now())
	if len(visible) == 0 {
		return nil, next
	}
	m := visible[0]
	m.held = true
	m.attempts++
	a := &activity{worker: w, m: m}
	w.activities[a] = struct{}{}
	return &provider.ActivityWorkItem{
		Instance: m.Target,
		Task:     clone(m.Event).(*history.TaskScheduled),
		Attempt:  m.attempts,
		Lock:     a,
	}, time.Time{}
}

// Complete implements provider.ActivityLock.
func (a *activity) Complete(ctx context.Context, result history.Event) error {
	h := a.worker.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case a.lost:
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
	if a.lost {
		return errKilled
	}
	a.m.backOff(h.Now(), cause)
	a.end()
	return nil
}

// end ends the lock. The caller holds mu.
func (a *activity) end() {
	a.lost = true
	delete(a.worker.activities, a)
	a.worker.hub.notify()
}
