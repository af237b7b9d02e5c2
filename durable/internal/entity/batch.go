package entity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Batch applies messages to an entity's state. It returns the operations to run, in order,
// and takes their results (DurableTask.Core/TaskEntityDispatcher.cs, OnProcessWorkItemAsync).
//
// While [Batch.Next] returns operations, call Done or Defer for each; then call Finish.
type Batch struct {
	id         ID
	instanceID string
	state      *State
	settings   Settings
	now        time.Time

	holderRequests []*Request // requests of the lock's holder; they run first
	operations     []*Request
	ran            int
	lock           *Request   // the lock request to grant after the operations
	early          []*Request // requests that arrived before they are due
	hasMore        bool       // the queue has requests for another batch
	hasDuplicates  bool       // the batch contains duplicates
	hasPassedOn    bool       // the batch contains lock requests from another entity

	responses []Message
	actions   []takenAction
}

// takenAction is an action of an operation.
type takenAction struct {
	action  Action
	request *Request
	ordinal int // index among the operation's actions
}

// Begin applies events, in order, to the state of the entity with the given instance ID. The
// Batch modifies state. Problems contains an error for each event that cannot be decoded, which
// Begin discards, and for an invalid instance ID.
func Begin(instanceID string, state *State, events []history.Event, now time.Time, settings Settings) (b *Batch, problems []error) {
	id, err := ParseID(instanceID)
	if err != nil {
		problems = append(problems, err)
	}
	b = &Batch{id: id, instanceID: instanceID, state: state, settings: settings, now: now}
	if settings.ExactlyOnce {
		state.Settle() // an earlier version may have stored it unsettled
	}
	state.memory.startBatch(now, settings.Resend)
	state.sorter.prune(&state.memory, now, limitsFor(settings.ExactlyOnce))
	b.moveHolderRequests()
	for _, e := range events {
		raised, ok := e.(*history.EventRaised)
		if !ok {
			continue
		}
		switch {
		case strings.HasPrefix(raised.Name, requestEvent):
			r, err := DecodeRequest(raised.Input)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			b.receive(r)
		case IsRelease(raised.Name):
			release, err := decodeRelease(raised.Input)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			b.release(release)
		default:
			state.suspended = false
			b.resume(raised)
		}
	}
	if settings.Window <= 0 {
		b.enqueue(state.sorter.expire(now))
	}
	state.queue = append(b.holderRequests, state.queue...)
	b.choose()
	return b, problems
}

// moveHolderRequests moves the requests of the lock's holder from the queue to holderRequests.
// In the queue, those that arrived after its lock request are behind the requests of other
// senders. They run first, before the requests of the holder in this batch. DurableTask runs
// them later, and only after another message, for which the holder may be waiting.
func (b *Batch) moveHolderRequests() {
	s := b.state
	if s.lockedBy == "" {
		return
	}
	var others []*Request
	for _, r := range s.queue {
		if r.Parent == s.lockedBy {
			b.holderRequests = append(b.holderRequests, r)
		} else {
			others = append(others, r)
		}
	}
	s.queue = others
}

// receive passes r to the Sorter and queues the requests that may take effect then: r, and
// requests that waited for it. A request that is due more than 100 ms later is not queued:
// Finish sends it to the entity again.
func (b *Batch) receive(r *Request) {
	s := b.state
	if r.Due.Sub(b.now) > 100*time.Millisecond {
		b.early = append(b.early, r)
		return
	}
	known := b.hasProcessed(r.key())
	deliver := s.sorter.Receive(r, b.settings.Window)
	if r.Position > 0 {
		b.hasPassedOn = true
		deliver = append(deliver, s.sorter.RecordPassedOn(r, r.LockSet[r.Position-1].String())...)
	}
	if known {
		deliver = slices.DeleteFunc(deliver, func(d *Request) bool { return d == r })
	}
	b.enqueue(deliver)
}

// enqueue queues requests unless the memory holds their IDs. The memory also recognizes
// duplicates that the Sorter does not order, and lock requests whose release arrived first.
func (b *Batch) enqueue(requests []*Request) {
	s := b.state
	for _, r := range requests {
		switch {
		case b.hasProcessed(r.key()):
			continue
		case s.lockedBy != "" && s.lockedBy == r.Parent:
			b.holderRequests = append(b.holderRequests, r)
		default:
			s.queue = append(s.queue, r)
		}
		s.memory.add(r.key(), b.reason(r), b.now)
	}
}

// hasProcessed reports whether a message with the given ID has taken effect.
func (b *Batch) hasProcessed(id string) bool {
	known := b.state.memory.has(id)
	b.hasDuplicates = b.hasDuplicates || known
	return known
}

// reason returns the reason for holding the ID of r in the memory. The Sorter holds the IDs of
// requests that it orders, but it may drop the sender of a late request too early.
func (b *Batch) reason(r *Request) reason {
	switch {
	case r.Parent == "":
		return retry
	case b.settings.ExactlyOnce:
		return redelivery
	case b.settings.Window <= 0 || r.IsLock() || !r.isLabeled() || b.now.Sub(r.Timestamp) > b.settings.Window-rerunTime:
		return rerun
	}
	return redelivery
}

// resume handles an event that makes the entity continue with its queue. A duplicate does so,
// too. The memory holds its ID, because a duplicate shows that the batch that took it is not
// settled.
func (b *Batch) resume(e *history.EventRaised) {
	if e.Input != nil && !b.hasProcessed(*e.Input) { // other programs send no input
		b.state.memory.add(*e.Input, redelivery, b.now)
	}
}

// release ends a lock. DurableTask compares only the holder; in addition:
//
//  1. The release must name the lock that is held, if its ID is known. A duplicate release therefore
//     does not end the holder's next critical section.
//  2. A request for the lock that is still queued, or arrives later, is void: the orchestration
//     ended before the lock was granted.
//  3. A .NET worker may have continued an orchestration that this program started. It names the lock
//     by the ID in its history, which may belong to another attempt than the one that acquired the
//     lock. Its release is accepted.
func (b *Batch) release(r Release) {
	s, key := b.state, r.key()
	orphaned := r.ID == OrphanedLock
	again := !orphaned && b.hasProcessed(releaseOf(key))
	fromDotNet := !again && r.Origin == "" && s.lockOrigin != ""
	ended := false
	if s.lockedBy == r.Parent && (orphaned || s.lockID == "" || r.names(s.lockID, s.lockOrigin) || fromDotNet) {
		s.lockedBy, s.lockID, s.lockOrigin, ended = "", "", "", true
	}
	void := func(q *Request) bool {
		matches := q.IsLock() && q.Parent == r.Parent && (orphaned || r.names(q.ID, q.Origin))
		ended = ended || matches
		return matches
	}
	s.queue, b.holderRequests = slices.DeleteFunc(s.queue, void), slices.DeleteFunc(b.holderRequests, void)
	if b.settings.ExactlyOnce && ended { // neither the release nor the request is delivered again
		return
	}
	if !orphaned && !again {
		s.memory.add(key, rerun, b.now)
		s.memory.add(releaseOf(key), rerun, b.now)
	}
}

// releaseOf returns the ID under which the memory holds the release of a lock.
func releaseOf(id string) string { return "-" + id }

// choose moves the requests that may run now from the queue to the batch.
func (b *Batch) choose() {
	s := b.state
	for !s.suspended && len(s.queue) > 0 && (s.lockedBy == "" || s.lockedBy == s.queue[0].Parent) {
		if len(b.operations) == b.settings.MaxBatch {
			b.hasMore = true
			return
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		if next.IsLock() {
			b.lock = next
			b.hasMore = slices.ContainsFunc(s.queue, func(r *Request) bool { return r.Parent == next.Parent })
			return
		}
		b.operations = append(b.operations, next)
	}
}

// HasDuplicates reports whether the batch contains duplicates.
func (b *Batch) HasDuplicates() bool { return b.hasDuplicates }

// HasPassedOnLocks reports whether the batch contains lock requests that another entity passed
// on. DurableTask grants such a request each time it is delivered
// (DurableTask.Core/Entities/StateFormat/MessageSorter.cs, ReceiveInOrder).
func (b *Batch) HasPassedOnLocks() bool { return b.hasPassedOn }

// Next returns the next operation to run. It returns ok == false after the last.
func (b *Batch) Next() (op *Operation, ok bool) {
	if b.ran >= len(b.operations) {
		return nil, false
	}
	r := b.operations[b.ran]
	return &Operation{
		Entity: b.id, Name: r.Operation, Input: r.Input, State: b.state.Text, Signal: r.Signal,
		RequestID: r.key(), Caller: r.Parent, Now: b.now, Due: r.Due, Trace: r.Trace(),
	}, true
}

// Done takes the result of the operation that Next returned.
func (b *Batch) Done(result Result) {
	r := b.operations[b.ran]
	b.ran++
	b.answer(r, Response{Result: result.Output, Failure: result.Failure})
	if result.Failure != nil && !b.settings.KeepFailedEffects {
		return
	}
	b.state.Text = result.State
	for i, a := range result.Actions {
		b.actions = append(b.actions, takenAction{a, r, i})
	}
}

func (b *Batch) answer(r *Request, response Response) {
	if r.Signal || r.Parent == "" {
		return
	}
	if response.Failure != nil {
		response.Result = nil
	}
	response.Origin = r.Origin
	b.responses = append(b.responses, Message{
		Target: history.OrchestrationInstance{InstanceID: r.Parent, ExecutionID: r.ParentExecution},
		Name:   r.ID, Input: new(response.Encode()),
	})
}

// Defer returns the operations that have not run to the queue.
func (b *Batch) Defer() {
	rest := slices.Clone(b.operations[b.ran:])
	b.operations = b.operations[:b.ran]
	if b.lock != nil {
		rest = append(rest, b.lock)
		b.lock = nil
	}
	b.state.queue = append(rest, b.state.queue...)
	b.hasMore = true
}

// Finish ends the batch and returns the outbox of the state: the messages to send, in order,
// after the state is stored. The messages of a batch are sent again until it is settled. The
// outbox therefore includes messages of an earlier batch if a message that it took was
// redelivered, or if [Settings].Resend is set.
//
// DurableTask sends messages before it stores the state. A caller may then receive the answer
// of a state that was never stored, or a lock that is not held.
func (b *Batch) Finish(execution string) []Message {
	out := b.responses
	for _, t := range b.actions {
		out = append(out, b.act(t))
	}
	if b.lock != nil {
		out = append(out, b.grant(b.lock))
	}
	for _, r := range b.early {
		out = append(out, event(b.instanceID, EventName(r.Due, b.now), new(r.Encode())))
	}
	if b.hasMore && !b.state.suspended {
		out = append(out, event(b.instanceID, continueEvent, new(b.continuation())))
	}
	for i := range out {
		if out[i].Start != nil {
			out[i].Sender, out[i].Number = execution, i
		}
	}
	last := &b.state.memory.last
	last.outbox = append(last.outbox, out...)
	out = last.outbox
	if b.settings.ExactlyOnce {
		b.state.Settle()
	}
	return out
}

// continuation returns the unique content of the event that makes the entity continue after
// this batch.
func (b *Batch) continuation() string {
	last := ""
	if b.ran > 0 {
		last = b.operations[b.ran-1].key()
	}
	return strconv.Quote(DeriveID(b.instanceID, "continue", last, history.TruncateToTicks(b.now).String()))
}

func event(instanceID, name string, input *string) Message {
	return Message{Target: history.OrchestrationInstance{InstanceID: instanceID}, Name: name, Input: input}
}

// act returns the message of an action. Its ID is derived from the request's ID, so that
// receivers recognize it if it is sent again after a crash.
func (b *Batch) act(t takenAction) Message {
	id := DeriveID(b.instanceID, t.request.key(), strconv.Itoa(t.ordinal))
	switch a := t.action.(type) {
	case *Start:
		execution := strings.ReplaceAll(id, "-", "")
		return Message{Target: history.OrchestrationInstance{InstanceID: a.InstanceID, ExecutionID: execution}, Input: a.Input, Start: a}
	case *Signal:
		r := &Request{ID: id, Operation: a.Operation, Signal: true, Input: a.Input, Parent: b.instanceID}
		r.SetTrace(Trace{Parent: a.Trace})
		to := a.Target.String()
		if a.Due.IsZero() {
			b.state.sorter.Label(r, to, b.now, b.settings.Window)
		} else {
			r.Due = history.TruncateToTicks(a.Due)
		}
		return event(to, EventName(r.Due, b.now), new(r.Encode()))
	default:
		panic(fmt.Sprintf("entity: an operation has an action of type %T", a))
	}
}

// grant locks the entity. It returns the request to the next entity of the lock set, or the
// answer to the orchestration if this is the last (DurableTask.Core/TaskEntityDispatcher.cs,
// ProcessLockRequest).
func (b *Batch) grant(r *Request) Message {
	b.state.lockedBy, b.state.lockID, b.state.lockOrigin = r.Parent, r.ID, r.Origin
	next := new(*r)
	next.Position++
	if next.Position < len(next.LockSet) {
		to := next.LockSet[next.Position].String()
		b.state.sorter.LabelPassedOn(next, to, b.now, b.settings.Window)
		return event(to, requestEvent, new(next.Encode()))
	}
	return Message{
		Target: history.OrchestrationInstance{InstanceID: r.Parent, ExecutionID: r.ParentExecution},
		Name:   r.ID, Input: new(Response{Result: new(lockGranted), Origin: r.Origin}.Encode()),
	}
}
