package entity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Batch takes messages to an entity's next state: it has the operations that are
// to run now, in order, and takes their results
// (DurableTask.Core/TaskEntityDispatcher.cs, OnProcessWorkItemAsync). While
// [Batch.Next] returns operations, call one of Done, Defer and Fail for each; then
// Finish.
type Batch struct {
	id         ID
	instanceID string
	state      *State
	settings   Settings
	now        time.Time

	ofHolder   []*Request // of the lock, which come first
	operations []*Request
	ran        int
	lock       *Request   // to be granted after the operations
	reschedule []*Request // came before their time
	goesOn     bool       // there is more than this batch may run
	repeats    bool       // some of the messages are duplicates
	passedOn   bool       // some of the messages are lock requests that another entity passed on

	responses []Message
	actions   []taken
}

// taken is an action of an operation.
type taken struct {
	action  Action
	request *Request
	ordinal int // among those of the operation
}

// Begin takes the events, in order, of the entity with the given instance ID and
// state, which the Batch changes. Problems are errors of events that no entity could
// decode; Begin drops these.
func Begin(instanceID string, state *State, events []history.Event, now time.Time, settings Settings) (b *Batch, problems []error) {
	id, err := ParseID(instanceID)
	if err != nil {
		problems = append(problems, err)
	}
	b = &Batch{id: id, instanceID: instanceID, state: state, settings: settings, now: now}
	if settings.Exact {
		state.Settle() // a program of before may not have stored it so
	}
	state.memory.begin(now, settings.Resend)
	state.sorter.forget(&state.memory, now, limitsOn(settings.Exact))
	b.takeHolders()
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
			b.goOn(raised)
		}
	}
	if settings.Window <= 0 {
		b.enqueue(state.sorter.leave(now))
	}
	state.queue = append(b.ofHolder, state.queue...)
	b.choose()
	return b, problems
}

// takeHolders takes the requests of the lock's holder out of the queue, where those
// that came after its request for the lock stand behind others'. They run first, and
// before what the holder sends now. In DurableTask they run after that, and wait for
// another message, for which the holder may wait.
func (b *Batch) takeHolders() {
	s := b.state
	if s.lockedBy == "" {
		return
	}
	var others []*Request
	for _, r := range s.queue {
		if r.Parent == s.lockedBy {
			b.ofHolder = append(b.ofHolder, r)
		} else {
			others = append(others, r)
		}
	}
	s.queue = others
}

// receive queues the requests whose turn it is now that r has come.
func (b *Batch) receive(r *Request) {
	s := b.state
	if r.Due.Sub(b.now) > 100*time.Millisecond {
		b.reschedule = append(b.reschedule, r)
		return
	}
	known := b.knows(r.key())
	deliver := s.sorter.Receive(r, b.settings.Window)
	if r.Position > 0 {
		b.passedOn = true
		deliver = append(deliver, s.sorter.Passed(r, r.LockSet[r.Position-1].String())...)
	}
	if known {
		deliver = slices.DeleteFunc(deliver, func(d *Request) bool { return d == r })
	}
	b.enqueue(deliver)
}

// enqueue queues requests unless the memory knows them. What the Sorter does not order
// is a duplicate then, too: also a request for a lock whose release came first.
func (b *Batch) enqueue(requests []*Request) {
	s := b.state
	for _, r := range requests {
		switch {
		case b.knows(r.key()):
			continue
		case s.lockedBy != "" && s.lockedBy == r.Parent:
			b.ofHolder = append(b.ofHolder, r)
		default:
			s.queue = append(s.queue, r)
		}
		s.memory.take(r.key(), b.reason(r), b.now)
	}
}

// knows reports whether something with an ID has taken effect.
func (b *Batch) knows(id string) bool {
	known := b.state.memory.knows(id)
	b.repeats = b.repeats || known
	return known
}

// reason returns for how long the memory has to know a request. The Sorter knows those
// that it orders, but may forget the sender of one that comes late too soon.
func (b *Batch) reason(r *Request) reason {
	switch {
	case r.Parent == "":
		return retry
	case b.settings.Exact:
		return redelivery
	case b.settings.Window <= 0 || r.IsLock() || !r.isLabelled() || b.now.Sub(r.Timestamp) > b.settings.Window-rerunTime:
		return rerun
	}
	return redelivery
}

// goOn takes an event that makes the entity go on, which a duplicate does, too. It is
// remembered since a duplicate says that the batch that took it was not settled.
func (b *Batch) goOn(e *history.EventRaised) {
	if e.Input != nil && !b.knows(*e.Input) { // without input it is another program's
		b.state.memory.take(*e.Input, redelivery, b.now)
	}
}

// release ends a lock. Beyond DurableTask, which compares the holder only:
//
//  1. The release must name the lock that is held, as far as that is known. A
//     duplicate does not end the holder's next critical section.
//  2. A request for the lock that is still in the queue, or is yet to come, is
//     void: the orchestration ended before the lock was granted.
//  3. A .NET worker that has taken an orchestration of ours over names the lock by
//     the ID in its history, which may be of another attempt than the one that got the
//     lock. Its release counts.
func (b *Batch) release(r Release) {
	s, key := b.state, r.key()
	orphaned := r.ID == OrphanedLock
	again := !orphaned && b.knows(releaseOf(key))
	dotnets := !again && r.Origin == "" && s.lockOrigin != ""
	ended := false
	if s.lockedBy == r.Parent && (orphaned || s.lockID == "" || r.names(s.lockID, s.lockOrigin) || dotnets) {
		s.lockedBy, s.lockID, s.lockOrigin, ended = "", "", "", true
	}
	void := func(q *Request) bool {
		is := q.IsLock() && q.Parent == r.Parent && (orphaned || r.names(q.ID, q.Origin))
		ended = ended || is
		return is
	}
	s.queue, b.ofHolder = slices.DeleteFunc(s.queue, void), slices.DeleteFunc(b.ofHolder, void)
	if b.settings.Exact && ended { // neither it nor the request comes again
		return
	}
	if !orphaned && !again {
		s.memory.take(key, rerun, b.now)
		s.memory.take(releaseOf(key), rerun, b.now)
	}
}

// releaseOf returns the ID by which the release of a lock is remembered.
func releaseOf(id string) string { return "-" + id }

// choose takes the requests from the queue that may run now.
func (b *Batch) choose() {
	s := b.state
	for !s.suspended && len(s.queue) > 0 && (s.lockedBy == "" || s.lockedBy == s.queue[0].Parent) {
		if len(b.operations) == b.settings.MaxBatch {
			b.goesOn = true
			return
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		if next.IsLock() {
			b.lock = next
			b.goesOn = slices.ContainsFunc(s.queue, func(r *Request) bool { return r.Parent == next.Parent })
			return
		}
		b.operations = append(b.operations, next)
	}
}

// Repeats reports whether some of the messages are duplicates.
func (b *Batch) Repeats() bool { return b.repeats }

// TookPassedOn reports whether another entity passed some of the messages on. They are lock
// requests, and DurableTask grants such a request again each time it is delivered
// (DurableTask.Core/Entities/StateFormat/MessageSorter.cs, ReceiveInOrder).
func (b *Batch) TookPassedOn() bool { return b.passedOn }

// Next returns the operation to run now; ok is false if there is none.
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

// Done takes the result of the last operation of Next.
func (b *Batch) Done(result Result) {
	r := b.operations[b.ran]
	b.ran++
	b.answer(r, Response{Result: result.Output, Failure: result.Failure}, "")
	if result.Failure != nil && !b.settings.KeepFailedEffects {
		return
	}
	b.state.Text = result.State
	for i, a := range result.Actions {
		b.actions = append(b.actions, taken{a, r, i})
	}
}

func (b *Batch) answer(r *Request, response Response, batchFailure string) {
	if r.Signal || r.Parent == "" {
		return
	}
	if response.Failure != nil && batchFailure == "" {
		response.Result = nil
	}
	response.Origin = r.Origin
	b.responses = append(b.responses, Message{
		Target: history.OrchestrationInstance{InstanceID: r.Parent, ExecutionID: r.ParentExecution},
		Name:   r.ID, Input: new(response.encode(batchFailure)),
	})
}

// Defer puts the operations that have not run back into the queue.
func (b *Batch) Defer() {
	rest := slices.Clone(b.operations[b.ran:])
	b.operations = b.operations[:b.ran]
	if b.lock != nil {
		rest = append(rest, b.lock)
		b.lock = nil
	}
	b.state.queue = append(rest, b.state.queue...)
	b.goesOn = true
}

// Fail answers all operations that have not run with a failure
// (DurableTask.Core/TaskEntityDispatcher.cs, OnProcessWorkItemAsync).
func (b *Batch) Fail(failure *history.FailureDetails) {
	for ; b.ran < len(b.operations); b.ran++ {
		b.answer(b.operations[b.ran], Response{Result: &failure.ErrorMessage, Failure: failure}, "entity dispatch failed")
	}
}

// Finish ends the batch and returns the outbox of the state: the messages that the
// entity's execution sends, in order, once the state is stored. Until the batch is
// settled they are sent again: the outbox has the messages of earlier batches, too, if
// a message that those took was redelivered, or if [Settings].Resend is set.
//
// DurableTask sends first. Then others may get the answer of a state that was never
// stored, or a lock that is not held.
func (b *Batch) Finish(execution string) []Message {
	out := b.responses
	for _, t := range b.actions {
		out = append(out, b.act(t))
	}
	if b.lock != nil {
		out = append(out, b.grant(b.lock))
	}
	for _, r := range b.reschedule {
		out = append(out, event(b.instanceID, EventName(r.Due, b.now), new(r.Encode())))
	}
	if b.goesOn && !b.state.suspended {
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
	if b.settings.Exact {
		b.state.Settle()
	}
	return out
}

// continuation returns the unique content of the event with which the entity goes on
// after this batch.
func (b *Batch) continuation() string {
	last := ""
	if b.ran > 0 {
		last = b.operations[b.ran-1].key()
	}
	return strconv.Quote(DeriveID(b.instanceID, "continue", last, history.Ticks(b.now).String()))
}

func event(instanceID, name string, input *string) Message {
	return Message{Target: history.OrchestrationInstance{InstanceID: instanceID}, Name: name, Input: input}
}

// act returns the message that carries out an action. Its ID is derived from the
// request's, so that receivers recognise a duplicate after a crash.
func (b *Batch) act(t taken) Message {
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
			r.Due = history.Ticks(a.Due)
		}
		return event(to, EventName(r.Due, b.now), new(r.Encode()))
	default:
		panic(fmt.Sprintf("entity: an operation has an action of type %T", a))
	}
}

// grant locks the entity, and returns the request to the next one or, if this is the
// last, the answer to the orchestration (DurableTask.Core/TaskEntityDispatcher.cs,
// ProcessLockRequest).
func (b *Batch) grant(r *Request) Message {
	b.state.lockedBy, b.state.lockID, b.state.lockOrigin = r.Parent, r.ID, r.Origin
	next := new(*r)
	next.Position++
	if next.Position < len(next.LockSet) {
		to := next.LockSet[next.Position].String()
		b.state.sorter.LabelPassed(next, to, b.now, b.settings.Window)
		return event(to, requestEvent, new(next.Encode()))
	}
	return Message{
		Target: history.OrchestrationInstance{InstanceID: r.Parent, ExecutionID: r.ParentExecution},
		Name:   r.ID, Input: new(Response{Result: new(lockGranted), Origin: r.Origin}.Encode()),
	}
}
