package partition

import (
	"context"
	"fmt"
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
	p *Partition
	// consumed holds the messages that the transaction deletes.
	consumed map[*message]struct{}
	// stored holds the results that the transaction stores in records of their own.
	stored map[*message]struct{}
	// staged holds the new messages by instance. After the commit they are added to the pending work.
	staged map[string][]*message
	// received holds the new state of senders whose mail the transaction processes.
	received map[string]*senderState
}

// consume deletes a message. It does nothing if the message is deleted.
func (t *txn) consume(m *message) {
	if t.isConsumed(m) {
		return
	}
	t.Remove(m.recordKey())
	if _, stored := t.stored[m]; stored { // earlier in this transaction
		t.Remove(messagesTable, logstore.NumberKey(m.number))
	}
	if t.consumed == nil {
		t.consumed = make(map[*message]struct{})
	}
	t.consumed[m] = struct{}{}
	t.AfterCommit(func() { t.p.delete(m) })
}

// isConsumed reports whether a message is deleted, or will be by this transaction.
func (t *txn) isConsumed(m *message) bool {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	_, consumed := t.consumed[m]
	return consumed || m.deleted
}

// newMessage stages a message with the next number.
func (t *txn) newMessage(record []byte, m provider.TaskMessage) *message {
	staged := &message{
		number: t.p.numbers.Add(1), size: len(record),
		route: route{kind: m.Event.Type(), target: m.Target},
		body:  bodyInMemory(record),
	}
	if t.staged == nil {
		t.staged = make(map[string][]*message)
	}
	id := m.Target.InstanceID
	t.staged[id] = append(t.staged[id], staged)
	return staged
}

// addMessage stores a message for immediate delivery.
func (t *txn) addMessage(record []byte, msg provider.TaskMessage) {
	m := t.newMessage(record, msg)
	t.Put(messagesTable, logstore.NumberKey(m.number), record)
	t.AfterCommit(func() { t.p.deliver(m) })
}

// addInFlight stores a message that is delivered when the session releases or loses the instance.
func (t *txn) addInFlight(s *session, msg provider.TaskMessage) error {
	record, err := encodeMessage(msg)
	if err != nil {
		return logstore.Refuse(err)
	}
	m := t.newMessage(record, msg)
	t.Put(messagesTable, logstore.NumberKey(m.number), record)
	t.AfterCommit(func() {
		if s.revoked || s.over {
			t.p.deliver(m)
			return
		}
		m.inFlight = true
		s.inFlight = append(s.inFlight, m)
	})
	return nil
}

// addTimer stores a message for delivery when it is due.
func (t *txn) addTimer(record []byte, msg provider.TaskMessage, due time.Time) {
	m := t.newMessage(record, msg)
	m.due = history.TruncateToTicks(due)
	if m.due.IsZero() { // the zero time marks a message that is not a timer
		m.due = m.due.Add(time.Second)
	}
	t.Put(timersTable, timerKey(m.due, m.number), record)
	t.AfterCommit(func() { t.p.deliverWhenDue(m) })
}

// addTask stores an activity, given the record of its message.
func (t *txn) addTask(message []byte) {
	t.addActivity(encodeActivity(activityHead{crashes: t.p.cfg.CrashCount}, message))
}

// addActivity stores an activity, given its record.
func (t *txn) addActivity(record []byte) {
	a := &activity{number: t.p.numbers.Add(1), body: bodyInMemory(record)}
	t.Put(activitiesTable, logstore.NumberKey(a.number), record)
	t.AfterCommit(func() { t.p.makeReady(a) })
}

// store stores a result in a record of its own and removes its activity's record.
func (t *txn) store(m *message) {
	t.p.mu.Lock()
	done := m.deleted || !m.unstored
	t.p.mu.Unlock()
	if _, consumed := t.consumed[m]; done || consumed {
		return
	}
	t.Remove(m.recordKey())
	t.Put(messagesTable, logstore.NumberKey(m.number), m.body)
	if t.stored == nil {
		t.stored = make(map[*message]struct{})
	}
	t.stored[m] = struct{}{}
	t.AfterCommit(func() {
		m.unstored = false
		if !m.inFlight { // else the session may be reading it
			m.body = bodyInMemory(m.body)
		}
		t.p.finish(m.activity)
	})
}

// pending returns an instance's messages, in memory and staged, that are not consumed.
func (t *txn) pending(id string) []*message {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	var all []*message
	if inst := t.p.instances[id]; inst != nil {
		all = slices.Concat(inst.inbox, inst.early, inst.timers)
		if inst.session != nil {
			all = append(all, inst.session.inFlight...)
		}
	}
	return slices.DeleteFunc(append(all, t.staged[id]...), func(m *message) bool {
		_, consumed := t.consumed[m]
		return m.deleted || consumed
	})
}

// cancel deletes an instance's messages for which f returns true.
func (t *txn) cancel(id string, f func(*message) bool) {
	for _, m := range t.pending(id) {
		if f(m) {
			t.consume(m)
		}
	}
}

// cancelTimers deletes the timers of an instance's execution, which has ended. It keeps delayed
// signals for an entity, which are for any execution.
func (t *txn) cancelTimers(id string) {
	t.cancel(id, func(m *message) bool { return m.isTimer() && m.target.ExecutionID != "" })
}

// start applies a client's start of an instance. It is refused if the instance has one of the
// refused statuses.
func (t *txn) start(msg provider.TaskMessage, refuse []history.RuntimeStatus) error {
	given, ok := msg.Event.(*history.ExecutionStarted)
	if !ok {
		return logstore.Refuse(fmt.Errorf("the message is a %T; want a *history.ExecutionStarted", msg.Event))
	}
	id := msg.Target.InstanceID
	r, err := t.row(id)
	if err != nil {
		return err
	}
	if r != nil && r.isStartedBy(given) {
		return nil // a client repeated the start because it did not know the outcome
	}
	if r != nil && slices.Contains(refuse, r.Status) {
		return logstore.Refuse(&provider.InstanceExistsError{InstanceID: id, Status: r.Status})
	}
	// Count the generation unless the client has, like DurableTask.AzureStorage
	// (AzureStorageOrchestrationService.cs, CreateTaskOrchestrationAsync).
	start := new(*given)
	if start.Generation == nil {
		start.Generation = new(int)
		if r != nil {
			*start.Generation = r.Generation + 1
		}
	}
	msg.Event = start
	record, err := encodeMessage(msg)
	if err != nil {
		return logstore.Refuse(err)
	}
	return t.createInstance(r, start, record, msg)
}

// send stores a message for an instance. A start creates the instance if it does not exist.
func (t *txn) send(record []byte, m provider.TaskMessage) error {
	id := m.Target.InstanceID
	if _, isActivity := m.Event.(*history.TaskScheduled); !isActivity && !t.p.cfg.Owns(id) {
		t.post(record, m)
		return nil
	}
	switch e := m.Event.(type) {
	case *history.TaskScheduled:
		t.addTask(record)
		return nil
	case *history.ExecutionStarted:
		r, err := t.row(id)
		if err != nil {
			return err
		}
		if r == nil {
			return t.createInstance(nil, e, record, m)
		}
		if r.Status.IsTerminal() && r.Instance.ExecutionID != e.Instance.ExecutionID {
			past, err := t.events(r.number)
			if err != nil || e.IsSameChild(history.StartOf(past)) {
				return err
			}
			return t.createInstance(r, e, record, m)
		}
		// The instance is running or pending: its session decides about the start.
	case *history.ExecutionTerminated:
		if done, err := t.terminateUnstarted(id, e); done || err != nil {
			return err
		}
	}
	if due, ok := provider.DelayedUntil(m); ok && due.After(time.Now()) {
		t.addTimer(record, m, due)
		return nil
	}
	t.addMessage(record, m)
	return nil
}

// terminateUnstarted terminates an instance that is scheduled to start later. It returns false
// if the instance is not one. A session would see the termination only at the start time.
func (t *txn) terminateUnstarted(id string, e *history.ExecutionTerminated) (bool, error) {
	r, err := t.row(id)
	if r == nil || err != nil || r.Status != history.Pending || !r.ScheduledAt.After(time.Now()) {
		return false, err
	}
	r.Apply(e)
	if err := t.putRow(r); err != nil {
		return false, err
	}
	t.AfterCommit(func() {
		if inst := t.p.instances[id]; inst != nil {
			inst.retryEarly()
			t.p.schedule(inst)
		}
		t.p.notifyEnded(id)
	})
	t.cancelTimers(id)
	return true, nil
}

// createInstance creates the instance of a start. It replaces the instance of old, unless that
// is nil.
func (t *txn) createInstance(old *row, start *history.ExecutionStarted, record []byte, m provider.TaskMessage) error {
	id := m.Target.InstanceID
	if old != nil {
		if err := t.removeExecution(old.number); err != nil {
			return err
		}
		was := old.Instance.ExecutionID
		t.cancel(id, func(m *message) bool { return m.isTimer() || was != "" && m.target.ExecutionID == was })
	}
	r := &row{number: t.p.numbers.Add(1), InstanceState: *provider.NewInstanceState(start)}
	r.Instance.InstanceID = id
	if err := t.putRow(r); err != nil {
		return err
	}
	if old != nil {
		t.AfterCommit(func() { t.p.restart(id) })
	}
	if start.ScheduledStart.After(time.Now()) {
		t.addTimer(record, m, start.ScheduledStart)
	} else {
		t.addMessage(record, m)
	}
	return nil
}

// putRow stores a row and its large payloads. Unread payloads are stored already.
func (t *txn) putRow(r *row) error {
	for which, text := range r.payloads() {
		if *text != unread && isSeparate(*text) {
			t.Put(payloadsTable, payloadKey(r.number, byte(which)), sharedBytes(**text))
		}
	}
	b, err := encodeRow(r)
	if err != nil {
		return err
	}
	t.Put(instancesTable, []byte(r.Instance.InstanceID), b)
	return nil
}

// renumber makes r the row of a new execution. It deletes the old history; the payloads move to
// the new number.
func (t *txn) renumber(r *row, number uint64) (err error) {
	for which, text := range r.payloads() {
		if *text, err = t.payload(r, byte(which), *text); err != nil {
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

// removeExecution deletes the history and the large payloads of an execution.
func (t *txn) removeExecution(number uint64) error {
	past, err := t.Group(historyTable, number)
	if err != nil {
		return err
	}
	payloads, err := t.Group(payloadsTable, number)
	if err != nil {
		return err // remove nothing: an inbox answers the request with this error and commits the rest of its transaction
	}
	for _, r := range past {
		t.Remove(historyTable, []byte(r.Key))
	}
	for _, r := range payloads {
		t.Remove(payloadsTable, []byte(r.Key))
	}
	return nil
}

// purge deletes the records of an instance, except its activities, which still run. If seen is
// not nil, purge refuses if the instance has changed since, or if it is an entity with pending
// messages.
func (t *txn) purge(id string, seen *provider.InstanceState) error {
	r, err := t.row(id)
	if err != nil {
		return err
	}
	if r == nil {
		return logstore.Refuse(provider.ErrInstanceNotFound)
	}
	if seen != nil {
		now, err := t.state(r, provider.Fetch{})
		if err != nil {
			return err
		}
		if !now.SameAs(seen) || history.IsEntity(id) && len(t.pending(id)) > 0 {
			return logstore.Refuse(provider.ErrInstanceChanged)
		}
	}
	if err := t.removeExecution(r.number); err != nil {
		return err
	}
	t.Remove(instancesTable, []byte(id))
	t.cancel(id, func(*message) bool { return true })
	t.AfterCommit(func() { t.p.restart(id) })
	return nil
}

// rewind removes failures from the histories of an instance and its children, and sends the
// messages that resume them. It returns the plan that it carried out.
func (t *txn) rewind(ctx context.Context, id, reason string, at time.Time) (*provider.RewindPlan, error) {
	r, err := t.row(id)
	if err != nil {
		return nil, err
	}
	if r != nil && !provider.CanRewind(r.Status) {
		return nil, logstore.Refuse(provider.ErrInstanceChanged)
	}
	plan, err := provider.PlanRewind(ctx, id, reason, at, func(_ context.Context, id string) ([]history.Event, error) {
		r, err := t.row(id)
		if r == nil || err != nil {
			return nil, err
		}
		return t.events(r.number)
	})
	if err != nil {
		return nil, logstore.Refuse(err)
	}
	for _, x := range plan.Executions {
		if err := t.rewindExecution(x, at); err != nil {
			return nil, err
		}
	}
	for _, m := range plan.Messages {
		record, err := encodeMessage(m)
		if err == nil {
			err = t.send(record, m)
		}
		if err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// rewindExecution removes events from an instance's history and resumes the instance.
func (t *txn) rewindExecution(x provider.RewoundExecution, at time.Time) error {
	id := x.Instance.InstanceID
	r, err := t.row(id)
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("instance %s has a history and no row", id)
	}
	episodes, err := t.Group(historyTable, r.number)
	if err != nil {
		return err
	}
	past, err := t.events(r.number)
	if err != nil {
		return err
	}
	rewound := x.Apply(past)
	begin := 0
	for _, e := range episodes { // also rewrites unchanged episodes; rewinds are rare
		events, err := decodeEpisode(nil, e.Value)
		if err != nil {
			return t.Damage(historyTable, []byte(e.Key), err)
		}
		record, err := encodeEpisode(rewound[begin : begin+len(events)])
		if err != nil {
			return err
		}
		t.Put(historyTable, []byte(e.Key), record)
		begin += len(events)
	}
	if slices.ContainsFunc(past, isEnd) {
		if err := t.restoreTimers(x.Instance, rewound); err != nil {
			return err
		}
	}
	r.Status, r.LastUpdatedAt = history.Pending, history.TruncateToTicks(at)
	if err := t.putRow(r); err != nil {
		return err
	}
	t.AfterCommit(func() { t.p.restart(id) })
	return nil
}

func isEnd(e history.Event) bool {
	_, ok := e.(*history.ExecutionCompleted)
	return ok
}

// restoreTimers stores the unfired timers of an execution's history again. They were deleted
// when the execution ended.
func (t *txn) restoreTimers(instance history.OrchestrationInstance, past []history.Event) error {
	fired := make(map[int]bool)
	for _, e := range past {
		if e, ok := e.(*history.TimerFired); ok {
			fired[e.TimerID] = true
		}
	}
	t.cancelTimers(instance.InstanceID) // the timers that were imported with the history
	for _, e := range past {
		created, ok := e.(*history.TimerCreated)
		if !ok || fired[created.EventID] {
			continue
		}
		m := provider.TaskMessage{
			Event:  &history.TimerFired{Header: history.NewHeader(created.Timestamp), TimerID: created.EventID, FireAt: created.FireAt},
			Target: instance,
		}
		record, err := encodeMessage(m)
		if err != nil {
			return err
		}
		t.addTimer(record, m, created.FireAt)
	}
	return nil
}

// post stores a message for an instance of another partition in the outbox.
func (t *txn) post(record []byte, m provider.TaskMessage) {
	t.postTo(Outgoing{To: m.Target.InstanceID, Record: record})
}

func (t *txn) postTo(m Outgoing) {
	m.Number = t.p.numbers.Add(1)
	t.Put(outboxTable, m.key(), m.Record)
	t.AfterCommit(func() { t.p.cfg.Post(m) })
}
