package entity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Batch is what an entity does with the messages that came: the operations
// that are to run now, in order, and what becomes of the entity then
// (DurableTask.Core/TaskEntityDispatcher.cs, OnProcessWorkItemAsync). While
// [Batch.Next] returns operations, one of Done, Defer and Fail is called for
// each; then Finish.
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
	goesOn     bool       // there is more than fits into this batch
	repeats    bool       // some of the messages came before

	responses []Message
	actions   []taken
}

// taken is an action of an operation.
type taken struct {
	action  Action
	request *Request
	ordinal int // among those of the operation
}

// Begin takes events, in order, that came for the entity with the given
// instance ID and state, which the Batch changes. Problems are about events
// that no entity could understand; they are dropped.
func Begin(instanceID string, state *State, events []history.Event, now time.Time, settings Settings) (b *Batch, problems []error) {
	id, err := ParseID(instanceID)
	if err != nil {
		problems = append(problems, err)
	}
	b = &Batch{id: id, instanceID: instanceID, state: state, settings: settings, now: now}
	state.memory.begin(now, state.outbox)
	state.sorter.forget(&state.memory, now)
	state.outbox = nil
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
			for _, r := range b.receive(r) {
				if state.lockedBy != "" && state.lockedBy == r.Parent {
					b.ofHolder = append(b.ofHolder, r)
				} else {
					state.queue = append(state.queue, r)
				}
			}
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
	state.queue = append(b.ofHolder, state.queue...)
	b.choose()
	return b, problems
}

// takeHolders takes what the holder of the lock sent before it had it, but what
// came after its request for the lock, from behind what others sent: it comes
// before what the holder sends now. Beyond DurableTask, where it comes after that,
// and does not run before something else comes, for which the holder may wait.
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

// receive returns the requests that are to be queued now that r has come.
func (b *Batch) receive(r *Request) []*Request {
	s := b.state
	if r.Due.Sub(b.now) > 100*time.Millisecond {
		b.reschedule = append(b.reschedule, r)
		return nil
	}
	if sorts(r, b.settings.Window) && s.sorter.knows(r) {
		b.repeats = true
		s.memory.comesAgain(r.key())
	}
	deliver := s.sorter.Receive(r, b.settings.Window)
	s.sorter.handOver(&s.memory, b.now)
	if r.Position > 0 {
		deliver = append(deliver, s.sorter.Passed(r, r.LockSet[r.Position-1].String())...)
	}
	// What no sorter knows must not come twice, either. Nor may a lock be granted
	// whose release came first.
	return slices.DeleteFunc(deliver, func(r *Request) bool {
		switch {
		case s.memory.comesAgain(r.key()):
			b.repeats = true
			return true
		case r.Parent == "":
			s.memory.takeSignal(r.key())
		case r.IsLock() || !sorts(r, b.settings.Window) || b.isLate(r):
			s.memory.takeRepeated(r.key(), b.now)
		default:
			s.memory.take(r.key())
		}
		return false
	})
}

// isLate reports whether a request took so long to come that the sorter may forget
// its sender before that cannot send it again any more.
func (b *Batch) isLate(r *Request) bool {
	return b.now.Sub(r.Timestamp) > b.settings.Window-repeatTime
}

// goOn takes an event that makes the entity go on. It does so as often as it
// comes; but what comes again was taken by a batch that was not settled.
func (b *Batch) goOn(e *history.EventRaised) {
	if e.Input == nil {
		return // another program's
	}
	if b.state.memory.comesAgain(*e.Input) {
		b.repeats = true
		return
	}
	b.state.memory.take(*e.Input)
}

// release gives the lock up that is named. Beyond DurableTask, which looks at
// the holder only:
//
//  1. It must be the lock that is held, as far as that is known: a release that
//     comes again does not end the holder's next critical section.
//  2. A request for the lock that is still in the queue, or is yet to come, is
//     void: the orchestration ended before the lock was granted.
//  3. A .NET worker that has taken an orchestration of ours over knows the lock by
//     the ID that the history has, which may be that of another attempt than the one
//     that got the lock. Its release counts.
func (b *Batch) release(r Release) {
	s, key := b.state, r.key()
	orphaned := r.ID == OrphanedLock
	again := !orphaned && s.memory.comesAgain(releaseOf(key))
	dotnets := !again && r.Origin == "" && s.lockOrigin != ""
	if s.lockedBy == r.Parent && (orphaned || s.lockID == "" || r.names(s.lockID, s.lockOrigin) || dotnets) {
		s.lockedBy, s.lockID, s.lockOrigin = "", "", ""
	}
	void := func(q *Request) bool {
		return q.IsLock() && q.Parent == r.Parent && (orphaned || r.names(q.ID, q.Origin))
	}
	s.queue, b.ofHolder = slices.DeleteFunc(s.queue, void), slices.DeleteFunc(b.ofHolder, void)
	switch {
	case orphaned:
	case again:
		b.repeats = true
	default:
		s.memory.takeRepeated(key, b.now)
		s.memory.takeRepeated(releaseOf(key), b.now)
	}
}

// releaseOf is what the release of a lock is remembered by, beside the ID of the
// lock.
func releaseOf(id string) string { return "-" + id }

// choose takes as many requests from the queue as may run now.
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

// Repeats reports whether some of the messages came before: those of an earlier
// batch were not all deleted.
func (b *Batch) Repeats() bool { return b.repeats }

// Next returns the operation that is to run now; ok is false if there is none.
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

// Done takes what the last operation of Next came to.
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

// Defer puts the operations that have not run back, to run in another batch.
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

// Fail answers all operations that have not run by a failure
// (DurableTask.Core/TaskEntityDispatcher.cs, OnProcessWorkItemAsync).
func (b *Batch) Fail(failure *history.FailureDetails) {
	for ; b.ran < len(b.operations); b.ran++ {
		b.answer(b.operations[b.ran], Response{Result: &failure.ErrorMessage, Failure: failure}, "entity dispatch failed")
	}
}

// Finish returns what is to be sent, in order, by the entity's execution. The
// state is that after the batch.
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
	return out
}

// continuation returns what tells the event apart by which the entity goes on
// after this batch. Nobody reads it but [Batch.goOn].
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

// act returns the message that carries out an action. Its ID follows from the
// request that the operation was for, so that an action which is taken again
// after a crash is known as the same.
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

// grant locks the entity, and returns what asks the next one to do so or tells
// the orchestration that all have (DurableTask.Core/TaskEntityDispatcher.cs,
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
