package replay

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// entities is an execution's part in talking to entities
// (DurableTask.Core/Entities/OrchestrationEntityContext.cs).
type entities struct {
	sorter  entity.Sorter
	window  time.Duration  // 0: the default; negative: none
	counts  map[string]int // how often a request was sent that is the same in all it says
	pending map[int]*request
	// calls are the requests that are answered, by ID. Those that were stay, as
	// nil, so that an answer which comes again is known.
	calls   map[string]*request
	section *section // nil outside of a critical section
	held    *section // what the history says of it
}

// A request is what was sent to an entity.
type request struct {
	message *entity.Request
	target  entity.ID
	future  *Future // nil for a signal
	section *section
}

// A section is a critical section, from when its locks are asked for.
type section struct {
	id     string // of the lock request
	locks  []entity.ID
	locked bool
	busy   map[entity.ID]bool // called, and not answered yet
}

// SetEntityReorderWindow sets how long entities wait for requests that others
// came before. It is for the code to call before it decides anything. Negative
// means that requests are not ordered.
func (x *Execution) SetEntityReorderWindow(d time.Duration) { x.entities.window = d }

// CallEntity decides to call an operation of an entity, and makes f its answer.
func (x *Execution) CallEntity(f *Future, target entity.ID, op string, input *string) {
	x.check("CallEntity")
	x.checkCall(target)
	x.checkLimit()
	r := x.newRequest("call", target, op, input)
	if s := x.entities.section; s != nil {
		s.busy[target] = true
		r.section = s
	}
	x.send(f, r, callKind)
}

// SignalEntity decides to send an entity an operation without waiting for it,
// at once or, if due is not zero, then.
func (x *Execution) SignalEntity(target entity.ID, op string, input *string, due time.Time) {
	x.check("SignalEntity")
	if s := x.entities.section; s != nil && slices.Contains(s.locks, target) {
		panic(&UsageError{"durable: SignalEntity: Must not signal a locked entity from a critical section: call " + target.String()})
	}
	x.checkLimit()
	kind := "signal"
	if !due.IsZero() {
		kind = "scheduled" // but not for when: that is another time if the episode runs again
	}
	r := x.newRequest(kind, target, op, input)
	r.message.Signal = true
	if !due.IsZero() {
		r.message.Due = history.Ticks(due)
	}
	x.send(nil, r, callKind)
}

// LockEntities decides to lock entities, and makes f complete when all are. It
// begins a critical section, which ends with [Execution.Unlock] or with the
// execution.
//
// The first entity, in the order of [entity.Compare], is asked to lock itself
// and to ask the next. All who lock do so in this order, so that they cannot
// wait for each other (DurableTask.Core/Entities/OrchestrationEntityContext.cs,
// EmitAcquireMessage).
func (x *Execution) LockEntities(f *Future, ids []entity.ID) {
	x.check("LockEntities")
	switch {
	case x.entities.section != nil:
		panic(&UsageError{"durable: LockEntities: Must not enter another critical section from within a critical section: unlock the entities first, or lock all of them at once"})
	case len(ids) == 0:
		panic(&UsageError{"durable: LockEntities was called without entities"})
	}
	x.checkLimit()
	locks := slices.Clone(ids)
	slices.SortFunc(locks, entity.Compare)
	locks = slices.Compact(locks)
	var names []string
	for _, id := range locks {
		names = append(names, id.String())
	}
	r := x.newRequest("lock", locks[0], "", nil, names...)
	r.message.LockSet = locks
	x.entities.section = &section{id: r.message.ID, locks: locks, busy: make(map[entity.ID]bool)}
	r.section = x.entities.section
	x.send(f, r, lockKind)
}

// Unlock ends the critical section, if there is one. It is made for deferred
// calls: in an orchestrator that is taken out of memory it does nothing.
func (x *Execution) Unlock() {
	if x.IsUnwinding() {
		return
	}
	x.check("Unlock")
	x.release(x.entities.section)
}

// Locked returns the entities of the critical section, in order, nil if there
// is none. They may not be locked yet.
func (x *Execution) Locked() []entity.ID {
	if x.entities.section == nil {
		return nil
	}
	return slices.Clone(x.entities.section.locks)
}

// checkCall panics if the critical section does not let target be called.
func (x *Execution) checkCall(target entity.ID) {
	s := x.entities.section
	problem := ""
	switch {
	case s == nil:
	case !s.locked:
		problem = "Must await the completion of the lock request prior to calling any entity"
	case s.busy[target]:
		problem = "Must not call an entity from a critical section while a prior call to the same entity is still pending"
	case !slices.Contains(s.locks, target):
		problem = "Must not call an entity from a critical section if it is not one of the locked entities"
	}
	if problem != "" {
		panic(&UsageError{"durable: CallEntity: " + problem + ": " + target.String()})
	}
}

// checkChild panics if a critical section forbids that a child is started.
func (x *Execution) checkChild() {
	if x.entities.section != nil {
		panic(&UsageError{"durable: While holding locks, cannot call suborchestrators: unlock the entities first"})
	}
}

// newRequest returns a request of this execution. Its ID follows from what it
// says, and from how often the execution has said the same before, so that one
// which is sent again after a crash is known as the same even if others were
// sent before it this time.
func (x *Execution) newRequest(kind string, target entity.ID, op string, input *string, more ...string) *request {
	v := &x.entities
	content := "null"
	if input != nil {
		content = "=" + *input
	}
	id := entity.DeriveID(append([]string{x.instance.InstanceID, x.instance.ExecutionID, kind, target.String(), op, content}, more...)...)
	if v.counts == nil {
		v.counts = make(map[string]int)
	}
	n := v.counts[id]
	v.counts[id]++
	if n > 0 {
		id = entity.DeriveID(id, strconv.Itoa(n))
	}
	return &request{target: target, message: &entity.Request{
		ID: id, Operation: op, Input: input, Parent: x.instance.InstanceID, ParentExecution: x.instance.ExecutionID,
	}}
}

// send labels a request and decides to send it.
func (x *Execution) send(f *Future, r *request, k kind) {
	v := &x.entities
	to, m := r.target.String(), r.message
	if m.Due.IsZero() {
		window := v.window
		if window == 0 {
			window = entity.DefaultReorderWindow
		}
		v.sorter.Label(m, to, x.now, window)
	}
	a := &SendEvent{InstanceID: to, Name: entity.EventName(m.Due, x.now), Input: new(m.Encode())}
	x.actions.add(a, &a.ID)
	if v.pending == nil {
		v.pending, v.calls = make(map[int]*request), make(map[string]*request)
	}
	v.pending[a.ID] = r
	if f == nil {
		return
	}
	r.future = f
	f.x, f.id, f.kind, f.name = x, a.ID, k, m.Operation
	v.calls[m.ID] = r
	x.answerEarly(m.ID)
}

// answerEarly answers a call whose answer came first: the checkpoint that it was
// made in was lost after the request was sent. It reports whether there was one.
func (x *Execution) answerEarly(id string) bool {
	e := x.events.take(id)
	return e != nil && x.answer(e)
}

// sent notes that the history has a request which was decided on now: its ID
// and label count, and not those made anew, which may be another program's.
func (x *Execution) sent(e *history.EventSent) {
	v := &x.entities
	r := v.pending[e.EventID]
	if r == nil {
		return
	}
	delete(v.pending, e.EventID)
	recorded, err := entity.DecodeRequest(e.Input)
	if err != nil {
		return // a history without inputs
	}
	if r.future != nil && v.calls[r.message.ID] == r {
		delete(v.calls, r.message.ID)
		v.calls[recorded.ID] = r
	}
	if r.section != nil && r.message.IsLock() {
		r.section.id = recorded.ID
	}
	r.message.ID = recorded.ID
	v.sorter.Sent(recorded, e.InstanceID)
	if r.future != nil && x.answerEarly(recorded.ID) {
		x.run()
	}
}

// trackLocks keeps book of the locks that the history has, for when the code does
// something else.
func (x *Execution) trackLocks(e *history.EventSent) {
	if !entity.IsID(e.InstanceID) {
		return
	}
	switch {
	case entity.IsRelease(e.Name):
		x.entities.held = nil
	case e.Input != nil && strings.Contains(*e.Input, `"lockset"`):
		if r, err := entity.DecodeRequest(e.Input); err == nil && r.IsLock() {
			x.entities.held = &section{id: r.ID, locks: r.LockSet}
		}
	}
}

// answer gives an event to the call that it answers, if it does so, and reports
// whether it is an answer.
func (x *Execution) answer(e *history.EventRaised) bool {
	id := strings.ToLower(e.Name)
	r, ok := x.entities.calls[id]
	if !ok || r == nil {
		return ok
	}
	x.entities.calls[id] = nil
	if s := r.section; s != nil {
		if r.message.IsLock() {
			s.locked = true
		}
		delete(s.busy, r.target)
	}
	r.future.complete(e)
	return true
}

// isAnswer reports whether an event answers a call, or did before.
func (x *Execution) isAnswer(e *history.EventRaised) bool {
	_, ok := x.entities.calls[strings.ToLower(e.Name)]
	return ok
}

// release decides to give up the locks of a critical section, if there is one.
func (x *Execution) release(s *section) {
	x.entities.section = nil
	if s == nil {
		return
	}
	name, text := entity.NewRelease(x.instance.InstanceID, s.id)
	for _, id := range s.locks {
		a := &SendEvent{InstanceID: id.String(), Name: name, Input: &text}
		x.actions.add(a, &a.ID)
	}
}

// releaseRecorded gives up the locks of an execution whose code does something
// else than its history has, before the end that was decided on.
func (x *Execution) releaseRecorded() {
	if x.entities.held == nil {
		return
	}
	x.actions.drop(x.complete)
	x.actions.next = x.complete.ID
	x.release(x.entities.held)
	x.entities.held = nil
	x.actions.add(x.complete, &x.complete.ID)
}

// EntityResponse returns what answered the call of an entity that f stands for.
func (f *Future) EntityResponse() (entity.Response, error) {
	return entity.ParseResponse(f.event.(*history.EventRaised).Input)
}
