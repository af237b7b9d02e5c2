package memhub

import (
	"context"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// session is the lock on an instance.
type session struct {
	worker    *Worker
	i         *instance
	execution history.OrchestrationInstance
	isNew     bool // no event of the execution has been committed
	revoked   bool
	inFlight  []*message
}

var _ provider.Session = (*session)(nil)

// dispatch marks messages as in flight and returns copies for the worker.
func (s *session) dispatch(messages []*message) []provider.TaskMessage {
	out := make([]provider.TaskMessage, len(messages))
	for n, m := range messages {
		m.inFlight = true
		m.attempts++
		out[n] = m.TaskMessage
		out[n].Event = clone(m.Event)
	}
	s.inFlight = append(s.inFlight, messages...)
	return out
}

// Commit implements provider.Session.
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	h := s.worker.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.revoked && h.happens(SessionLost) {
		s.revoke(0)
	}
	if s.revoked {
		return provider.ErrSessionLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if h.happens(CommitFails) {
		return ErrInjected
	}
	for _, m := range cp.Activities {
		h.activities = append(h.activities, h.message(m, h.Now()))
	}
	for _, m := range cp.Timers {
		h.post(m, m.Event.(*history.TimerFired).FireAt)
	}
	tears := h.happens(CommitTears)
	if cp.SendLast {
		s.write(cp)
	}
	for n, m := range cp.Messages {
		if tears && cp.SendLast && n >= len(cp.Messages)/2 {
			break
		}
		h.post(m, h.Now())
	}
	h.notify()
	if tears {
		return ErrInjected
	}
	if !cp.SendLast {
		s.write(cp)
	}
	s.consume(cp)
	h.log = append(h.log, Commit{At: h.Now(), Checkpoint: *cp})
	if h.happens(CommitReplyLost) {
		return ErrInjected
	}
	return nil
}

// consume deletes the messages in flight. While steps run, one that wakes the instance stays in
// flight.
func (s *session) consume(cp *provider.Checkpoint) {
	h := s.worker.hub
	var wake *message
	taken := make(map[*message]bool, len(s.inFlight))
	for _, m := range s.inFlight {
		if cp.StepsRunning && wake == nil && m.WakesSteps() && m.Target == cp.Instance {
			wake = m
			continue
		}
		taken[m] = true
	}
	s.i.mail = remove(s.i.mail, func(m *message) bool { return taken[m] })
	s.inFlight = nil
	if cp.StepsRunning && wake == nil {
		wake = h.message(provider.WakeSteps(cp.Instance, h.Now()), h.Now())
		wake.inFlight = true
		s.i.mail = append(s.i.mail, wake)
		h.enlist(s.i)
	}
	if wake != nil {
		s.inFlight = append(s.inFlight, wake)
	}
}

// write appends the events of cp to the history and updates the state.
func (s *session) write(cp *provider.Checkpoint) {
	if len(cp.NewEvents) == 0 {
		return
	}
	if s.isNew || cp.ContinuedAsNew {
		s.i.history = nil
	}
	s.i.history = append(s.i.history, cloneAll(cp.NewEvents)...)
	s.execution, s.isNew = cp.Instance, false
	state := new(provider.InstanceState)
	if s.i.state != nil {
		*state = *s.i.state
	}
	state.Commit(cp)
	s.i.state = state
}

// revoke releases the lock without notifying the worker. The messages in flight become visible
// after a delay. The caller holds mu.
func (s *session) revoke(delay time.Duration) {
	for _, m := range s.inFlight {
		m.inFlight = false
		m.visible = s.worker.hub.Now().Add(delay)
	}
	s.revoked = true
	s.unlock()
}

// unlock makes the instance available for dispatch. The caller holds mu.
func (s *session) unlock() {
	if s.i.session == s {
		s.i.session = nil
	}
	s.inFlight = nil
	delete(s.worker.sessions, s)
	s.worker.hub.notify()
}

// Abandon implements provider.Session.
func (s *session) Abandon(ctx context.Context, cause error) error {
	h := s.worker.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range s.inFlight {
		m.backOff(h.Now(), cause)
	}
	if slices.ContainsFunc(s.i.mail, func(m *message) bool { return !m.inFlight && m.attempts == 0 && m.endsPause() }) {
		s.i.endPause(h.Now()) // the message arrived during the session
	}
	s.inFlight = nil
	h.notify()
	return nil
}

// Next implements provider.Session.
func (s *session) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	h := s.worker.hub
	wait, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	var messages []provider.TaskMessage
	err := h.await(wait, func() (bool, time.Time) {
		if s.revoked || !s.worker.running {
			return true, time.Time{}
		}
		visible, next := due(s.i.mail, h.Now())
		if len(visible) == 0 {
			return false, next
		}
		sorted := s.i.sort(visible)
		if sorted.isNew {
			return true, time.Time{} // a start begins another execution
		}
		s.i.mail = remove(s.i.mail, func(m *message) bool { return sorted.drop[m] })
		if len(sorted.take) == 0 {
			return false, next
		}
		messages = s.dispatch(sorted.take)
		return true, time.Time{}
	})
	if err != nil && ctx.Err() == nil {
		return nil, nil // no message within the idle time
	}
	return messages, err
}

// Release implements provider.Session.
func (s *session) Release(ctx context.Context) error {
	h := s.worker.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range s.inFlight {
		m.backOff(h.Now(), nil)
	}
	s.unlock()
	return nil
}
