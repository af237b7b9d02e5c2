package partition

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

// session is the lock on an instance.
type session struct {
	p    *Partition
	inst *instance
	// changed holds at most one token, which says that the instance has new messages or that
	// the session must end.
	changed chan struct{}

	// Used only by the session's caller: the number and the ID of the dispatched execution, and
	// the index of its next event. The number is 0 if the instance had no execution.
	number    uint64
	execution string
	next      int
	stepsRun  bool        // the last commit left steps running
	idle      *time.Timer // the timer of Next; nil before its first call

	// Protected by work.mu.
	inFlight []*message
	revoked  bool // another session may hold the instance
	over     bool // abandoned or released
}

var (
	_ provider.Session = (*session)(nil)
	_ provider.Holder  = (*session)(nil)
)

// open returns the session's work item, or nil if no message can be dispatched.
func (s *session) open(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item := &provider.OrchestrationWorkItem{OwnedSince: s.p.opened, Session: s}
	var c classified
	err := s.p.read("read instance "+s.inst.id, func(t tables) error {
		r, err := t.row(s.inst.id)
		if err != nil {
			return err
		}
		if r != nil {
			if item.History, err = t.events(r.number); err != nil {
				return err
			}
			s.number, s.execution, s.next = r.number, r.Instance.ExecutionID, len(item.History)
		}
		p := s.progress(r, func() ([]history.Event, error) { return item.History, nil })
		c, err = classify(t, &p, s.inFlight)
		return err
	})
	if err == nil && len(c.replace) > 0 {
		err = s.replace(ctx, c)
	}
	if err != nil || len(c.replace) > 0 || !s.accept(c) {
		return nil, err
	}
	item.Instance = history.OrchestrationInstance{InstanceID: s.inst.id, ExecutionID: s.execution}
	if start, ok := c.deliver[0].Event.(*history.ExecutionStarted); ok && s.number == 0 {
		item.Instance.ExecutionID = start.Instance.ExecutionID
	}
	item.Messages = c.deliver
	return item, nil
}

// progress returns the instance's state for [provider.Progress.Disposition].
func (s *session) progress(r *row, past func() ([]history.Event, error)) provider.Progress {
	if r == nil {
		return provider.Progress{}
	}
	return provider.Progress{Known: true, Execution: r.Instance.ExecutionID, Status: r.Status, HasHistory: s.next > 0, History: past}
}

// classified holds messages by their dispositions.
type classified struct {
	deliver        []provider.TaskMessage
	early, discard []*message
	replace        []*message // starts that replace the execution, which has ended since they were stored
}

// classify loads messages and determines their dispositions. If they contain the start of the
// current execution, that comes first.
func classify(t tables, p *provider.Progress, messages []*message) (classified, error) {
	c := classified{deliver: make([]provider.TaskMessage, 0, len(messages))}
	own := func(m *message) bool { return m.isStart() && m.target.ExecutionID == p.Execution }
	at := slices.IndexFunc(messages, own)
	p.Starting = p.Starting || at >= 0
	if at > 0 {
		messages = slices.Concat(messages[at:at+1], messages[:at], messages[at+1:])
	}
	for _, m := range messages {
		msg, err := m.load(t)
		if err != nil {
			return classified{}, err
		}
		d, err := p.Disposition(msg, m.isTrusted())
		if err != nil {
			return classified{}, err
		}
		switch {
		case d == provider.StartExecution && p.Status.IsTerminal():
			c.replace = append(c.replace, m)
		case d == provider.Deliver, d == provider.StartExecution:
			c.deliver = append(c.deliver, msg)
		case d == provider.HoldBack:
			c.early = append(c.early, m)
		default: // OtherExecution, Discard
			// A message for another execution is obsolete: a later execution would have been stored
			// in the same transaction as its messages.
			c.discard = append(c.discard, m)
		}
	}
	return c, nil
}

// replace stores starts of children once more, which were stored while another execution ran. That execution
// has ended, so send replaces it and revokes the session, or discards the start if the execution belongs to
// the same child. Messages to the ended execution are discarded. Messages that were stored after the first of
// the starts are for its child: the revocation requeues them, and the child's start is dispatched before them.
// The end of ctx does not cancel replace, because that would pause the instance.
func (s *session) replace(ctx context.Context, c classified) error {
	return s.p.writer.Do(context.WithoutCancel(ctx), func(t *txn) error {
		t.cancel(s.inst.id, func(m *message) bool { return m.number < c.replace[0].number && !m.isStart() })
		for _, m := range c.replace {
			if t.isConsumed(m) {
				continue // purged meanwhile
			}
			msg, err := m.load(t.tables)
			if err != nil {
				return err
			}
			record, err := encodeMessage(msg)
			if err != nil {
				return err
			}
			t.consume(m)
			if err := t.send(record, msg); err != nil {
				return err
			}
		}
		return nil
	})
}

// accept removes the early and the discarded messages from the session. It returns true if
// messages remain and may be dispatched.
func (s *session) accept(c classified) bool {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.revoked {
		return false // the messages were requeued
	}
	if len(c.early)+len(c.discard) > 0 {
		for _, m := range c.early {
			m.inFlight = false
			if !m.deleted {
				s.inst.early = append(s.inst.early, m)
			}
		}
		for _, m := range c.discard {
			m.inFlight = false
		}
		s.inFlight = slices.DeleteFunc(s.inFlight, func(m *message) bool { return !m.inFlight })
		s.discard(c.discard)
	}
	return len(c.deliver) > 0 && p.serves()
}

// discard deletes messages with a lazy write.
func (s *session) discard(messages []*message) {
	if len(messages) == 0 {
		return
	}
	for _, m := range messages {
		s.p.cfg.Logger.Debug("discarded a message", "instanceId", m.target.InstanceID, "executionId", m.target.ExecutionID, "eventType", m.kind.String())
	}
	// If it fails, they are discarded when the partition is opened next.
	_ = s.p.writer.SubmitLazy(logstore.NewOp(func(t *txn) error {
		for _, m := range messages {
			t.consume(m)
		}
		return nil
	}))
}

// Commit implements [provider.Session].
func (s *session) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	c, err := newCommit(s, cp)
	if err != nil {
		return fmt.Errorf("commit checkpoint of instance %s: %w", s.inst.id, err)
	}
	if err := s.p.writer.Do(ctx, c.apply); err != nil {
		if errors.Is(err, logstore.ErrClosed) {
			err = fmt.Errorf("%w: %w", provider.ErrSessionLost, err)
		}
		return fmt.Errorf("commit checkpoint of instance %s: %w", s.inst.id, err)
	}
	s.number, s.execution, s.next, s.stepsRun = c.number, c.execution, c.next, cp.StepsRunning
	return nil
}

// Holds implements [provider.Holder].
func (s *session) Holds() bool {
	s.p.mu.Lock()
	holds := !s.revoked && !s.over && s.p.serves()
	s.p.mu.Unlock()
	return holds && s.p.cfg.Readable() == nil
}

// Leaves implements [provider.Holder].
func (s *session) Leaves() (left time.Duration, ok bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return time.Until(s.p.revokes), s.p.drained != nil || s.revoked
}

// uncommitted returns the messages in flight.
func (s *session) uncommitted() []*message {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return slices.Clone(s.inFlight)
}

// isOver reports whether the session can no longer commit.
func (s *session) isOver() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.revoked || s.over
}

// committed applies a commit to the pending work. mu is locked.
func (s *session) committed() {
	s.inFlight = slices.DeleteFunc(s.inFlight, func(m *message) bool { return m.deleted })
	s.inst.attempts = 0
	s.inst.retryEarly()
	s.p.schedule(s.inst)
	s.p.checkDrained()
}

// Abandon implements [provider.Session].
func (s *session) Abandon(_ context.Context, cause error) error {
	s.p.cfg.Logger.Debug("instance was abandoned", "instanceId", s.inst.id, "executionId", s.execution, "error", cause)
	s.abandon(cause)
	return nil
}

// Release implements [provider.Session].
func (s *session) Release(context.Context) error {
	if len(s.uncommitted()) > 0 {
		s.abandon(nil)
	}
	s.end()
	return nil
}

// abandon requeues the messages in flight. It pauses the instance, unless a message that ends
// the pause has arrived during the session.
func (s *session) abandon(cause error) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.over || s.revoked {
		return // already requeued
	}
	s.over = true
	controlled := slices.ContainsFunc(s.inst.inbox, (*message).endsPause)
	s.requeue()
	if !controlled {
		p.pauseInstance(s.inst, cause)
	}
	p.checkDrained()
}

// end releases the lock.
func (s *session) end() {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	s.over = true
	s.unlock()
	p.checkDrained()
}

// revoke takes the lock away from the caller, who can no longer commit. mu is locked.
func (s *session) revoke() {
	if s.revoked {
		return
	}
	s.revoked = true
	s.unlock()
	notify(s.changed)
	s.p.checkDrained()
}

// unlock makes the instance available for dispatch. mu is locked.
func (s *session) unlock() {
	delete(s.p.sessions, s)
	if s.inst.session == s {
		s.requeue()
		s.inst.session = nil
		s.p.schedule(s.inst)
	}
}

func (s *session) requeue() {
	s.inst.requeue(s.inFlight)
	s.inFlight = nil
}

// Next implements [provider.Session].
func (s *session) Next(ctx context.Context, idle time.Duration) ([]provider.TaskMessage, error) {
	timeout := s.startTimer(idle)
	defer timeout.Stop()
	for {
		taken, ended := s.receiveMore()
		if ended {
			return nil, nil
		}
		if len(taken) > 0 {
			messages, err := s.load(taken)
			if err != nil || len(messages) > 0 {
				return messages, err
			}
			continue
		}
		select {
		case <-s.changed:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// startTimer starts the timer of Next.
func (s *session) startTimer(d time.Duration) *time.Timer {
	if s.idle == nil {
		s.idle = time.NewTimer(d)
	} else {
		s.idle.Reset(d)
	}
	return s.idle
}

// receiveMore takes new messages. ended is true if the session must end, because Run stops or
// because a start is waiting. While steps run, a start waits until the next commit instead.
func (s *session) receiveMore() (more []*message, ended bool) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.stepsRun {
		s.inst.postponeStarts()
	}
	if s.over || s.revoked || !p.serves() || slices.ContainsFunc(s.inst.inbox, (*message).isStart) {
		return nil, true
	}
	more = s.inst.take()
	s.inFlight = append(s.inFlight, more...)
	return more, false
}

// load loads the taken messages and returns those that can be dispatched.
func (s *session) load(more []*message) ([]provider.TaskMessage, error) {
	var c classified
	err := s.p.read("read messages of instance "+s.inst.id, func(t tables) error {
		r, err := t.row(s.inst.id)
		if err != nil {
			return err
		}
		p := s.progress(r, func() ([]history.Event, error) { return t.events(r.number) })
		p.Starting = s.next == 0
		c, err = classify(t, &p, more)
		return err
	})
	if err != nil || !s.accept(c) {
		s.putBack(more)
		return nil, err
	}
	return c.deliver, nil
}

// putBack returns messages in flight that the session's caller did not receive to the inbox. Otherwise the
// next commit would delete them.
func (s *session) putBack(messages []*message) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.revoked {
		return // already requeued
	}
	s.inst.requeue(slices.DeleteFunc(messages, func(m *message) bool { return !m.inFlight }))
	s.inFlight = slices.DeleteFunc(s.inFlight, func(m *message) bool { return !m.inFlight })
}

// notify leaves a token in a channel, unless it holds one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
