package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// commit is a checkpoint that becomes part of a transaction.
type commit struct {
	s  *session
	cp *provider.Checkpoint

	// The records, encoded before the transaction.
	episode    []byte
	activities [][]byte
	timers     [][]byte
	messages   [][]byte

	// The session's position after the commit; set by apply.
	number    uint64
	execution string
	next      int
	ended     bool // the execution is over
}

// newCommit encodes a checkpoint.
func newCommit(s *session, cp *provider.Checkpoint) (*commit, error) {
	c := &commit{s: s, cp: cp}
	var err error
	if len(cp.NewEvents) > 0 {
		if c.episode, err = encodeEpisode(cp.NewEvents); err != nil {
			return nil, err
		}
	}
	for _, part := range []struct {
		from   []provider.TaskMessage
		to     *[][]byte
		encode func(provider.TaskMessage) ([]byte, error)
	}{{cp.Activities, &c.activities, s.p.encodeNewActivity}, {cp.Timers, &c.timers, encodeMessage}, {cp.Messages, &c.messages, encodeMessage}} {
		for _, m := range part.from {
			if err := CheckID(m.Target.InstanceID); err != nil {
				return nil, err
			}
			b, err := part.encode(m)
			if err != nil {
				return nil, err
			}
			*part.to = append(*part.to, b)
		}
	}
	for _, m := range cp.Activities {
		if _, ok := m.Event.(*history.TaskScheduled); !ok {
			return nil, fmt.Errorf("activity is a %T; want a *history.TaskScheduled", m.Event)
		}
	}
	for _, m := range cp.Timers {
		if _, ok := m.Event.(*history.TimerFired); !ok {
			return nil, fmt.Errorf("timer is a %T; want a *history.TimerFired", m.Event)
		}
	}
	return c, nil
}

// apply applies the checkpoint to a transaction.
func (c *commit) apply(t *txn) error {
	r, err := c.check(t)
	if err != nil {
		return err
	}
	c.number, c.execution, c.next, c.ended = c.s.number, c.s.execution, c.s.next, false
	if err := c.consume(t); err != nil {
		return err
	}
	if len(c.cp.NewEvents) > 0 {
		if err := c.advance(t, r); err != nil {
			return err
		}
	}
	for _, b := range c.activities {
		t.addActivity(b)
	}
	for i, b := range c.timers {
		if c.ended { // no timer is needed anymore; advance canceled the earlier ones
			break
		}
		t.addTimer(b, c.cp.Timers[i], c.cp.Timers[i].Event.(*history.TimerFired).FireAt)
	}
	for i, b := range c.messages {
		if err := t.send(b, c.cp.Messages[i]); err != nil {
			return err
		}
	}
	t.AfterCommit(c.s.committed)
	return nil
}

// consume deletes the messages in flight. While steps run, one that wakes the instance stays in
// flight.
func (c *commit) consume(t *txn) error {
	wakes := false
	for _, m := range c.s.uncommitted() {
		if c.cp.StepsRunning && m.kind == history.TypeGenericEvent && m.target == c.cp.Instance {
			msg, err := m.load(t.tables)
			if err != nil {
				return err
			}
			if msg.WakesSteps() {
				wakes = true
				continue
			}
		}
		t.consume(m)
	}
	if !c.cp.StepsRunning || wakes {
		return nil
	}
	return t.addInFlight(c.s, provider.WakeSteps(c.cp.Instance, time.Now()))
}

// check returns the instance's row, or nil for a new instance. It returns
// provider.ErrSessionLost if the session is over, or if the instance has another execution or a
// longer history than the session knows.
func (c *commit) check(t *txn) (*row, error) {
	s := c.s
	if s.isOver() {
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

// advance appends the events to the history, or starts a new history, and updates the row.
func (c *commit) advance(t *txn, r *row) error {
	id := c.s.inst.id
	isNew := r == nil
	if isNew {
		r = &row{}
	}
	if r.number == 0 || c.cp.ContinuedAsNew {
		if err := t.renumber(r, t.p.numbers.Add(1)); err != nil {
			return err
		}
		c.next, isNew = 0, true
	}
	if c.cp.ContinuedAsNew {
		t.cancelTimers(id)
	}
	t.Put(historyTable, eventKey(r.number, c.next), c.episode)
	ended := r.Status.IsTerminal()
	if r.commit(c.cp) || isNew {
		if err := t.putRow(r); err != nil {
			return err
		}
	}
	c.ended = r.Status.IsTerminal()
	if !ended && c.ended {
		t.cancelTimers(id)
		t.AfterCommit(func() { t.p.notifyEnded(id) })
	}
	c.number, c.execution, c.next = r.number, r.Instance.ExecutionID, c.next+len(c.cp.NewEvents)
	return nil
}

// maxIDLength is the maximum length of an instance ID, in bytes.
const maxIDLength = 4096

// CheckID returns an error if id is not a valid instance ID.
func CheckID(id string) error {
	switch {
	case id == "":
		return errors.New("message has no instance ID")
	case len(id) > maxIDLength:
		return fmt.Errorf("instance ID has %d bytes; the limit is %d", len(id), maxIDLength)
	}
	return nil
}
