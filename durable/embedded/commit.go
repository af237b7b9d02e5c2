package embedded

import (
	"errors"
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A commit is a checkpoint on its way into a transaction.
type commit struct {
	s  *session
	cp *provider.Checkpoint

	// What is encoded before the transaction, by the caller.
	episode    []byte
	activities [][]byte
	timers     [][]byte
	messages   [][]byte

	// Where the session goes on; set by apply.
	number    uint64
	execution string
	next      int
}

// prepare encodes a checkpoint.
func (s *session) prepare(cp *provider.Checkpoint) (*commit, error) {
	c := &commit{s: s, cp: cp}
	var err error
	if len(cp.NewEvents) > 0 {
		if c.episode, err = encodeEpisode(cp.NewEvents); err != nil {
			return nil, err
		}
	}
	for _, part := range []struct {
		from []provider.TaskMessage
		to   *[][]byte
	}{{cp.Activities, &c.activities}, {cp.Timers, &c.timers}, {cp.Messages, &c.messages}} {
		for _, m := range part.from {
			if err := checkID(m.Target.InstanceID); err != nil {
				return nil, err
			}
			b, err := encodeMessage(m)
			if err != nil {
				return nil, err
			}
			*part.to = append(*part.to, b)
		}
	}
	for _, m := range cp.Activities {
		if _, ok := m.Event.(*history.TaskScheduled); !ok {
			return nil, fmt.Errorf("activity is a %T", m.Event)
		}
	}
	for _, m := range cp.Timers {
		if _, ok := m.Event.(*history.TimerFired); !ok {
			return nil, fmt.Errorf("timer is a %T", m.Event)
		}
	}
	return c, nil
}

// apply makes the checkpoint part of a transaction.
func (c *commit) apply(t *txn) error {
	id := c.s.inst.id
	r, err := c.check(t)
	if err != nil {
		return err
	}
	c.number, c.execution, c.next = c.s.number, c.s.execution, c.s.next
	for _, m := range c.s.uncommitted() {
		t.consume(m)
	}
	if len(c.cp.NewEvents) > 0 {
		if err := c.advance(t, id, r); err != nil {
			return err
		}
	}
	for _, b := range c.activities {
		t.addActivity(b)
	}
	for i, b := range c.timers {
		t.addTimer(b, c.cp.Timers[i], c.cp.Timers[i].Event.(*history.TimerFired).FireAt)
	}
	for i, b := range c.messages {
		if err := t.send(b, c.cp.Messages[i]); err != nil {
			return err
		}
	}
	t.Then(c.s.committed)
	return nil
}

// check finds out whether the instance is as the session has it: the same
// execution with the same history. It returns the instance's row.
func (c *commit) check(t *txn) (*row, error) {
	s := c.s
	t.h.mu.Lock()
	lost := s.lost || s.over
	t.h.mu.Unlock()
	if lost {
		return nil, logstore.Refuse(provider.ErrSessionLost)
	}
	r, err := t.row(s.inst.id)
	if err != nil {
		return nil, err
	}
	if r == nil && s.number == 0 {
		return nil, nil
	}
	if r == nil || r.number != s.number {
		return nil, logstore.Refuse(provider.ErrSessionLost)
	}
	longer, err := t.hasEventsFrom(s.number, s.next)
	if err != nil {
		return nil, err
	}
	if longer {
		return nil, logstore.Refuse(provider.ErrSessionLost)
	}
	return r, nil
}

// advance appends the events to the history, or begins a new one, and brings
// the row up to date.
func (c *commit) advance(t *txn, id string, r *row) error {
	changed := false
	if r == nil {
		r, changed = &row{status: history.Running, updated: c.cp.NewEvents[0].Head().Timestamp}, true
	}
	if r.number == 0 || c.cp.ContinuedAsNew {
		if err := t.renumber(r, t.h.numbers.Add(1)); err != nil {
			return err
		}
		c.next, changed = 0, true
	}
	if c.cp.ContinuedAsNew {
		t.cancelTimers(id)
	}
	t.Put(historyTable, eventKey(r.number, c.next), c.episode)
	ended := r.status.IsTerminal()
	if r.apply(c.cp.NewEvents) {
		changed = true
	}
	if r.status == history.Pending { // it was rewound
		r.status, changed = history.Running, true
	}
	if custom := c.cp.CustomStatus; r.custom.apart || !equalText(custom, r.custom.text) {
		r.custom, changed = r.custom.holds(custom), true
	}
	if r.execution == "" {
		r.execution = c.cp.Instance.ExecutionID
	}
	if changed {
		if err := t.putRow(id, r); err != nil {
			return err
		}
	}
	if !ended && r.status.IsTerminal() {
		t.cancelTimers(id)
		t.Then(func() { t.h.tell(id) })
	}
	c.number, c.execution, c.next = r.number, r.execution, c.next+len(c.cp.NewEvents)
	return nil
}

// renumber makes r the row of a new execution. The payloads that stay move
// with it; the old history goes.
func (t *txn) renumber(r *row, number uint64) error {
	var err error
	for which, p := range []*payload{&r.input, &r.output, &r.custom} {
		if p.text, err = t.payload(r, byte(which), *p); err != nil {
			return err
		}
	}
	if r.number != 0 {
		if err := t.removeExecution(r.number); err != nil {
			return err
		}
	}
	r.number = number
	return nil
}

func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// uncommitted returns what the session handed out since the last commit.
func (s *session) uncommitted() []*message {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return slices.Clone(s.taken)
}

// committed is a commit's effect in memory. What is still in s.taken was
// consumed. mu is locked.
func (s *session) committed() {
	s.taken = slices.DeleteFunc(s.taken, func(m *message) bool { return m.gone })
	s.inst.attempts = 0
	s.inst.reconsiderHeld()
	s.h.consider(s.inst)
	s.h.checkDrained()
}

// maxIDLength is the length of the longest instance ID, in bytes.
const maxIDLength = 4096

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("message names no instance")
	case len(id) > maxIDLength:
		return fmt.Errorf("instance ID has %d bytes; the limit is %d", len(id), maxIDLength)
	}
	return nil
}
