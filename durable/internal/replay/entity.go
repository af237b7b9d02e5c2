package replay

import (
	"cmp"
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
	ids     map[string]string // of calls, by their origins
	aliases []Alias
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
	origin string
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
	r := x.newRequest(target, entity.Request{Operation: op, Input: input})
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
		panic(x.misuse("durable: SignalEntity: Must not signal a locked entity from a critical section: call " + target.String()))
	}
	x.checkLimit()
	if !due.IsZero() {
		due = history.Ticks(due)
	}
	r := x.newRequest(target, entity.Request{Operation: op, Input: input, Signal: true, Due: due})
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
		panic(x.misuse("durable: LockEntities: Must not enter another critical section from within a critical section: unlock the entities first, or lock all of them at once"))
	case len(ids) == 0:
		panic(x.misuse("durable: LockEntities was called without entities"))
	}
	x.checkLimit()
	locks := slices.Clone(ids)
	slices.SortFunc(locks, entity.Compare)
	locks = slices.Compact(locks)
	r := x.newRequest(locks[0], entity.Request{LockSet: locks})
	x.entities.section = &section{id: r.message.ID, origin: r.message.Origin, locks: locks, busy: make(map[entity.ID]bool)}
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
		panic(x.misuse("durable: CallEntity: " + problem + ": " + target.String()))
	}
}

// checkChild panics if a critical section forbids that a child is started.
func (x *Execution) checkChild() {
	if x.entities.section != nil {
		panic(x.misuse("durable: While holding locks, cannot call suborchestrators: unlock the entities first"))
	}
}

// newRequest returns a request of this execution. Its ID is the one that .NET makes
// when it replays the history (durabletask-dotnet's
// src/Worker/Core/Shims/TaskOrchestrationEntityContext.cs, SendOperationMessage and
// LockEntitiesAsync): it waits for an event of that name.
//
// An episode that runs again after a crash has another time, and so other IDs. Its
// requests are known as the same by their origins.
func (x *Execution) newRequest(target entity.ID, m entity.Request) *request {
	m.Parent, m.ParentExecution = x.instance.InstanceID, x.instance.ExecutionID
	v := &x.entities
	origin := originOf(target.String(), &m)
	if v.counts == nil {
		v.counts = make(map[string]int)
	}
	n := v.counts[origin]
	v.counts[origin]++
	if n > 0 {
		origin = entity.DeriveID(origin, strconv.Itoa(n))
	}
	x.guids.requests++
	if x.guids.ours {
		m.ID = origin
	} else {
		m.ID, m.Origin = x.requestGUID().String(), origin
	}
	return &request{target: target, message: &m}
}

// originOf returns what the first request of its content has for an origin. It
// follows from what the request says, but not from when it is due: that is another
// time if the episode runs again.
func originOf(target string, r *entity.Request) string {
	kind, content := "call", "null"
	switch {
	case r.IsLock():
		kind = "lock"
	case !r.Due.IsZero():
		kind = "scheduled"
	case r.Signal:
		kind = "signal"
	}
	if r.Input != nil {
		content = "=" + *r.Input
	}
	parts := []string{r.Parent, r.ParentExecution, kind, target, r.Operation, content}
	for _, id := range r.LockSet {
		parts = append(parts, id.String())
	}
	return entity.DeriveID(parts...)
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
		v.pending, v.calls, v.ids = make(map[int]*request), make(map[string]*request), make(map[string]string)
	}
	v.pending[a.ID] = r
	if f == nil {
		return
	}
	r.future = f
	f.x, f.id, f.kind, f.name = x, a.ID, k, m.Operation
	v.await(r)
	x.answerEarly(r)
}

// await notes under which name a call is answered.
func (v *entities) await(r *request) {
	v.calls[r.message.ID] = r
	if r.message.Origin != "" {
		v.ids[r.message.Origin] = r.message.ID
	}
}

// answerEarly answers a call whose answer came first: the checkpoint that it was
// made in was lost after the request was sent. It reports whether there was one.
func (x *Execution) answerEarly(r *request) (answered bool) {
	for _, name := range []string{cmp.Or(r.message.Origin, r.message.ID), r.message.ID} {
		for e := x.events.take(name); e != nil; e = x.events.take(name) {
			answered = x.answer(e) || answered
		}
	}
	return answered
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
		r.message.ID = recorded.ID
		v.await(r)
	}
	if r.section != nil && r.message.IsLock() {
		r.section.id, r.section.origin = recorded.ID, recorded.Origin
	}
	r.message.ID = recorded.ID
	v.sorter.Sent(recorded, e.InstanceID)
	if r.future != nil && x.answerEarly(r) {
		x.run()
	}
}

// trackLocks keeps book of the locks that the history has, for when the code does
// something else.
func (x *Execution) trackLocks(e *history.EventSent) {
	if !history.IsEntity(e.InstanceID) {
		return
	}
	switch {
	case entity.IsRelease(e.Name):
		x.entities.held = nil
	case e.Input != nil && strings.Contains(*e.Input, `"lockset"`):
		if r, err := entity.DecodeRequest(e.Input); err == nil && r.IsLock() {
			x.entities.held = &section{id: r.ID, origin: r.Origin, locks: r.LockSet}
		}
	}
}

// An Alias is an answer that came under another name than that of the request
// which the history has, since an attempt of the episode that was lost had sent it.
// Whoever knows nothing of origins needs one of that name.
type Alias struct {
	Answer *history.EventRaised
	Name   string
}

// idAnswered returns the ID of the call that an event answers, if it answers one: by its
// origin if it has one, which tells calls apart that have one ID, as those of generations
// that begin at one time.
func (v *entities) idAnswered(e *history.EventRaised) string {
	if origin := entity.OriginOfResponse(e.Input); origin != "" {
		return v.ids[origin]
	}
	return strings.ToLower(e.Name)
}

// answer gives an event to the call that it answers, if it does so, and reports
// whether it is an answer.
func (x *Execution) answer(e *history.EventRaised) bool {
	v := &x.entities
	id := v.idAnswered(e)
	r, ok := v.calls[id]
	if !ok || r == nil {
		return ok
	}
	v.calls[id] = nil
	if !x.replaying && !strings.EqualFold(e.Name, id) {
		v.aliases = append(v.aliases, Alias{e, id})
	}
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
	_, ok := x.entities.calls[x.entities.idAnswered(e)]
	return ok
}

// release decides to give up the locks of a critical section, if there is one.
func (x *Execution) release(s *section) {
	x.entities.section = nil
	if s == nil {
		return
	}
	name, text := entity.NewRelease(entity.Release{Parent: x.instance.InstanceID, ID: s.id, Origin: s.origin})
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
