package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A session is the time that an instance is in a caller's hands.
type session struct {
	h    *Hub
	inst *instance
	// arrived has room for one token, left when the instance gets messages or
	// the session is to end.
	arrived chan struct{}

	// Owned by the caller: which execution was handed out, 0 if the instance had
	// none, and the index of its next event.
	number    uint64
	execution string
	next      int

	// Protected by Hub.mu.
	taken []*message
	lost  bool // the instance is somebody else's
	over  bool // abandoned or released
}

var _ provider.Session = (*session)(nil)

// NextOrchestration implements [provider.Worker].
func (h *Hub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	for {
		s, err := h.takeInstance(ctx)
		if err != nil {
			return nil, err
		}
		item, err := h.open(s)
		if err != nil {
			h.log.Error("instance cannot be read; it is held back", "instanceId", s.inst.id, "error", err)
			s.abandon(nil)
			s.end()
			if errors.Is(err, ErrClosed) {
				return nil, err
			}
			continue
		}
		if item != nil {
			return item, nil
		}
	}
}

// takeInstance waits for an instance that is ready, and locks it.
func (h *Hub) takeInstance(ctx context.Context) (*session, error) {
	for {
		if err := ctx.Err(); err != nil {
			post(h.instanceReady) // it may have taken the token of another who waits
			return nil, err
		}
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, ErrClosed
		}
		for h.serves() && h.ready.len() > 0 {
			inst := h.ready.pop()
			inst.ready = false
			if len(inst.inbox) == 0 {
				h.consider(inst)
				continue
			}
			s := &session{h: h, inst: inst, arrived: make(chan struct{}, 1)}
			s.taken = inst.take()
			inst.session = s
			h.sessions[s] = struct{}{}
			if h.ready.len() > 0 {
				post(h.instanceReady) // for the next who waits
			}
			h.mu.Unlock()
			return s, nil
		}
		h.mu.Unlock()
		select {
		case <-h.instanceReady:
		case <-h.closing:
		case <-ctx.Done():
		}
	}
}

// open reads what a session took and makes a work item of it. It returns none,
// and ends the session, if there is nothing to hand out.
func (h *Hub) open(s *session) (*provider.OrchestrationWorkItem, error) {
	item := &provider.OrchestrationWorkItem{OwnedSince: h.opened, Session: s}
	var out sorting
	err := h.read("read instance "+s.inst.id, func(t tables) error {
		r, err := t.row(s.inst.id)
		if err != nil {
			return err
		}
		var now standing
		if r != nil {
			if item.History, err = t.events(r.number); err != nil {
				return err
			}
			s.number, s.execution, s.next = r.number, r.execution, len(item.History)
			now = standing{known: true, execution: r.execution, status: r.status, begun: s.next > 0}
			now.scheduled = actionsOf(func() ([]history.Event, error) { return item.History, nil })
		}
		out, err = sortOut(t, now, s.taken)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !s.settle(out) {
		s.end()
		return nil, nil
	}
	item.Instance = history.OrchestrationInstance{InstanceID: s.inst.id, ExecutionID: s.execution}
	if start, ok := out.messages[0].Event.(*history.ExecutionStarted); ok && s.number == 0 {
		item.Instance.ExecutionID = start.Instance.ExecutionID
	}
	item.Messages = out.messages
	return item, nil
}

// actionsOf returns a function that reports whether a history has the event
// of an action. The history is read when it is first asked.
func actionsOf(read func() ([]history.Event, error)) func(id int) (bool, error) {
	var actions map[int]bool
	return func(id int) (bool, error) {
		if actions == nil {
			past, err := read()
			if err != nil {
				return false, err
			}
			actions = make(map[int]bool)
			for _, e := range past {
				if id := e.Head().EventID; id != history.NoEventID {
					actions[id] = true
				}
			}
		}
		return actions[id], nil
	}
}

// A sorting is what became of messages that were taken.
type sorting struct {
	messages      []provider.TaskMessage
	held, dropped []*message
}

// sortOut reads messages and judges them. The start of the current execution,
// if it is among them, becomes the first.
func sortOut(t tables, now standing, taken []*message) (sorting, error) {
	out := sorting{messages: make([]provider.TaskMessage, 0, len(taken))}
	own := func(m *message) bool { return m.starts() && m.target.ExecutionID == now.execution }
	if at := slices.IndexFunc(taken, own); at > 0 {
		now.starting = true
		taken = slices.Concat(taken[at:at+1], taken[:at], taken[at+1:])
	} else {
		now.starting = at == 0
	}
	for _, m := range taken {
		msg, err := m.load(t)
		if err != nil {
			return sorting{}, err
		}
		v, err := judge(now, msg, m.vouched())
		if err != nil {
			return sorting{}, err
		}
		switch v {
		case take:
			out.messages = append(out.messages, msg)
		case hold:
			out.held = append(out.held, m)
		case drop:
			out.dropped = append(out.dropped, m)
		}
	}
	return out, nil
}

// settle takes what was held and dropped from the session. It reports whether
// there is something to hand out and the session may still do so.
func (s *session) settle(out sorting) bool {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.lost {
		return false // all was given back
	}
	if len(out.held)+len(out.dropped) > 0 {
		for _, m := range out.held {
			m.taken = false
			if !m.gone {
				s.inst.held = append(s.inst.held, m)
			}
		}
		for _, m := range out.dropped {
			m.taken = false
		}
		s.taken = slices.DeleteFunc(s.taken, func(m *message) bool { return !m.taken })
		h.discard(out.dropped)
	}
	return len(out.messages) > 0 && h.serves()
}

// discard has messages deleted that nobody wants, when there is time.
func (h *Hub) discard(dropped []*message) {
	if len(dropped) == 0 {
		return
	}
	for _, m := range dropped {
		h.log.Debug("dropped a message", "instanceId", m.target.InstanceID, "executionId", m.target.ExecutionID, "eventType", m.kind.String())
	}
	// Nobody waits: if it cannot be written, they are dropped when the hub is
	// next opened.
	_ = h.writer.SubmitLazy(logstore.NewOp(func(t *txn) error {
		for _, m := range dropped {
			t.consume(m)
		}
		return nil
	}))
}

// Commit implements [provider.Session].
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	c, err := s.prepare(cp)
	if err != nil {
		return fmt.Errorf("commit checkpoint of instance %s: %w", s.inst.id, err)
	}
	if err := s.h.writer.Do(ctx, c.apply); err != nil {
		if errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", provider.ErrSessionLost, err)
		}
		return fmt.Errorf("commit checkpoint of instance %s: %w", s.inst.id, err)
	}
	s.number, s.execution, s.next = c.number, c.execution, c.next
	return nil
}

// Abandon implements [provider.Session].
func (s *session) Abandon(_ context.Context, cause error) error {
	s.h.log.Debug("instance was abandoned", "instanceId", s.inst.id, "executionId", s.execution, "error", cause)
	s.abandon(cause)
	return nil
}

// Release implements [provider.Session].
func (s *session) Release(context.Context) error {
	s.h.mu.Lock()
	left := len(s.taken) > 0
	s.h.mu.Unlock()
	if left {
		s.abandon(nil)
	}
	s.end()
	return nil
}

// abandon hands the messages back; the instance then pauses.
func (s *session) abandon(cause error) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over || s.lost {
		return // they were given back already
	}
	s.over = true
	s.inst.giveBack(s.taken)
	s.taken = nil
	h.pauseInstance(s.inst, cause)
	h.checkDrained()
}

// end gives the lock up.
func (s *session) end() {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.over = true
	delete(h.sessions, s)
	if s.inst.session == s {
		s.inst.giveBack(s.taken)
		s.taken = nil
		s.inst.session = nil
		h.consider(s.inst)
	}
	h.checkDrained()
}

// lose takes the instance away from its caller. mu is locked.
func (s *session) lose() {
	if s.lost {
		return
	}
	s.lost = true
	delete(s.h.sessions, s)
	if s.inst.session == s {
		s.inst.giveBack(s.taken)
		s.taken = nil
		s.inst.session = nil
	}
	post(s.arrived)
	s.h.consider(s.inst)
	s.h.checkDrained()
}

// Next implements [provider.Session].
func (s *session) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	patience := time.NewTimer(idle)
	defer patience.Stop()
	for {
		taken, ended := s.takeMore()
		if ended {
			return nil, nil
		}
		if len(taken) > 0 {
			messages, err := s.hand(taken)
			if err != nil || len(messages) > 0 {
				return messages, err
			}
			continue
		}
		select {
		case <-s.arrived:
		case <-patience.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// takeMore takes what has arrived. It reports whether the session is at its
// end: the instance is wanted back, or starts anew.
func (s *session) takeMore() (more []*message, ended bool) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.over || s.lost || !h.serves() || slices.ContainsFunc(s.inst.inbox, (*message).starts) {
		return nil, true
	}
	more = s.inst.take()
	s.taken = append(s.taken, more...)
	return more, false
}

// hand returns those of the taken messages that can be handed out.
func (s *session) hand(more []*message) ([]provider.TaskMessage, error) {
	var out sorting
	err := s.h.read("read messages of instance "+s.inst.id, func(t tables) error {
		r, err := t.row(s.inst.id)
		if err != nil {
			return err
		}
		var now standing
		if r != nil {
			now = standing{known: true, execution: r.execution, status: r.status, begun: s.next > 0}
			now.scheduled = actionsOf(func() ([]history.Event, error) { return t.events(r.number) })
		}
		out, err = sortOut(t, now, more)
		return err
	})
	if err != nil {
		return nil, err // what was taken is given back with the session
	}
	if !s.settle(out) {
		return nil, nil
	}
	return out.messages, nil
}
