package embedded

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// txn is the transaction of a group of operations.
type txn struct {
	*logstore.Txn
	tables
	h *Hub
	// consumed are the messages that the transaction deletes.
	consumed map[*message]struct{}
	// stored are the results to which the transaction gives records of their own.
	stored map[*message]struct{}
	// staged are the messages that it adds, by the instance they are for.
	staged map[string][]*message
}

// consume deletes a message.
func (t *txn) consume(m *message) {
	if _, twice := t.consumed[m]; twice {
		return
	}
	t.h.mu.Lock()
	gone := m.gone
	t.h.mu.Unlock()
	if gone {
		return
	}
	t.Remove(m.place())
	if _, stored := t.stored[m]; stored { // by the same transaction, just before
		t.Remove(messagesTable, logstore.NumberKey(m.number))
	}
	if t.consumed == nil {
		t.consumed = make(map[*message]struct{})
	}
	t.consumed[m] = struct{}{}
	t.Then(func() { t.h.forget(m) })
}

// newMessage returns a message with the next number, for an instance.
func (t *txn) newMessage(record []byte, m provider.TaskMessage) *message {
	return &message{
		number: t.h.numbers.Add(1),
		route:  route{kind: m.Event.Type(), target: m.Target},
		body:   keep(record),
	}
}

// stage remembers a message that is in the transaction but not in memory.
func (t *txn) stage(m *message) {
	if t.staged == nil {
		t.staged = make(map[string][]*message)
	}
	t.staged[m.target.InstanceID] = append(t.staged[m.target.InstanceID], m)
}

// addMessage stores a message that is to be handed out.
func (t *txn) addMessage(record []byte, msg provider.TaskMessage) {
	m := t.newMessage(record, msg)
	t.Put(messagesTable, logstore.NumberKey(m.number), record)
	t.stage(m)
	t.Then(func() { t.h.deliver(m) })
}

// addTimer stores a message that is to be handed out at a time.
func (t *txn) addTimer(record []byte, msg provider.TaskMessage, due time.Time) {
	m := t.newMessage(record, msg)
	m.due = history.Ticks(due)
	if m.due.IsZero() { // would not count as a timer
		m.due = m.due.Add(time.Second)
	}
	t.Put(timersTable, timerKey(m.due, m.number), record)
	t.stage(m)
	t.Then(func() { t.h.wait(m) })
}

// cancel deletes those messages of an instance that f picks, wherever they are.
func (t *txn) cancel(id string, f func(*message) bool) {
	for _, m := range t.pending(id) {
		if f(m) {
			t.consume(m)
		}
	}
}

// pending returns the messages of an instance that the hub has, wherever they are.
func (t *txn) pending(id string) []*message {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	var all []*message
	if inst := t.h.instances[id]; inst != nil {
		all = slices.Concat(inst.inbox, inst.held, inst.timers)
		if inst.session != nil {
			all = append(all, inst.session.taken...)
		}
	}
	return slices.DeleteFunc(append(all, t.staged[id]...), func(m *message) bool {
		_, consumed := t.consumed[m]
		return m.gone || consumed
	})
}

// cancelTimers deletes an instance's timers: the execution that they were for
// is over. What was sent to an entity, to be delivered later, is for any.
func (t *txn) cancelTimers(id string) {
	t.cancel(id, func(m *message) bool { return m.isTimer() && m.target.ExecutionID != "" })
}

// send stores a message for another instance, or the same. One that starts an
// instance makes it known.
func (t *txn) send(record []byte, m provider.TaskMessage) error {
	id := m.Target.InstanceID
	switch e := m.Event.(type) {
	case *history.ExecutionStarted:
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r == nil {
			return t.begin(id, nil, e, record, m)
		}
		if r.status.IsTerminal() && r.execution != e.Instance.ExecutionID {
			again, err := t.isSameChild(r, e)
			if err != nil || again {
				return err
			}
			return t.begin(id, r, e, record, m)
		}
		// The instance lives: the engine has to say what becomes of its second
		// start.
	case *history.ExecutionTerminated:
		if ended, err := t.endUnstarted(id, e); ended || err != nil {
			return err
		}
	}
	if due, ok := provider.EntityDue(m); ok && due.After(time.Now()) {
		t.addTimer(record, m, due)
		return nil
	}
	t.addMessage(record, m)
	return nil
}

// isSameChild reports whether start is that of the child whose row r is, sent
// again: the same action of the same parent decided on both, and the child has
// continued as new since.
func (t *txn) isSameChild(r *row, start *history.ExecutionStarted) (bool, error) {
	if start.Parent == nil {
		return false, nil
	}
	past, err := t.events(r.number)
	if err != nil {
		return false, err
	}
	for _, e := range past {
		if e, ok := e.(*history.ExecutionStarted); ok {
			return e.Parent != nil && *e.Parent == *start.Parent, nil
		}
	}
	return false, nil
}

// endUnstarted ends an instance that is to start later, and reports whether it
// was one. Nothing else would look at its termination before that time.
func (t *txn) endUnstarted(id string, e *history.ExecutionTerminated) (bool, error) {
	r, err := t.row(id)
	if r == nil || err != nil || r.status != history.Pending || !r.scheduled.After(time.Now()) {
		return false, err
	}
	r.end(history.Terminated, e.Reason, e.Timestamp)
	r.updated = e.Timestamp
	if err := t.putRow(id, r); err != nil {
		return false, err
	}
	t.Then(func() {
		if inst := t.h.instances[id]; inst != nil {
			inst.reconsiderHeld()
			t.h.consider(inst)
		}
		t.h.tell(id)
	})
	t.cancelTimers(id)
	return true, nil
}

// begin makes an instance known that start begins, in the place of old, which
// is nil if there is none.
func (t *txn) begin(id string, old *row, start *history.ExecutionStarted, record []byte, m provider.TaskMessage) error {
	if old != nil {
		if err := t.removeExecution(old.number); err != nil {
			return err
		}
		stale := func(m *message) bool {
			return m.isTimer() || old.execution != "" && m.target.ExecutionID == old.execution
		}
		t.cancel(id, stale)
	}
	r := &row{number: t.h.numbers.Add(1), firstCreated: start.Timestamp}
	r.begin(start, history.Pending)
	r.input = r.input.holds(start.Input)
	if err := t.putRow(id, r); err != nil {
		return err
	}
	if old != nil {
		t.Then(func() { t.h.replaced(id) })
	}
	if start.ScheduledStart.After(time.Now()) {
		t.addTimer(record, m, start.ScheduledStart)
	} else {
		t.addMessage(record, m)
	}
	return nil
}

// replaced takes an instance from whoever has it, since it starts anew. mu is
// locked.
func (h *Hub) replaced(id string) {
	h.tell(id)
	inst := h.instances[id]
	if inst == nil {
		return
	}
	if inst.session != nil {
		inst.session.lose()
	}
	inst.attempts = 0
	h.stopAlarm(inst.pause)
	inst.pause = nil
	inst.reconsiderHeld()
	h.consider(inst)
}

// putRow stores a row, and those of its payloads that are apart and have a
// text: the others are stored already.
func (t *txn) putRow(id string, r *row) error {
	for which, p := range []*payload{&r.input, &r.output, &r.custom} {
		if p.apart && p.text != nil {
			t.Put(payloadsTable, payloadKey(r.number, byte(which)), []byte(*p.text))
		}
	}
	b, err := encodeRow(r)
	if err != nil {
		return err
	}
	t.Put(instancesTable, []byte(id), b)
	return nil
}

// removeExecution deletes the history and the payloads of an execution.
func (t *txn) removeExecution(number uint64) error {
	for _, id := range []logstore.Table{historyTable, payloadsTable} {
		all, err := t.Group(id, number)
		if err != nil {
			return err
		}
		for _, r := range all {
			t.Remove(id, []byte(r.Key))
		}
	}
	return nil
}
