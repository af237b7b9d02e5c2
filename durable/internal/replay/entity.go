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
	x       *Execution
	sorter  entity.Sorter
	window  time.Duration  // 0: the default; negative: none
	counts  map[string]int // how often a request was sent that is the same in all it says
	pending map[int]*request
	// calls are the requests that want an answer, by ID. An answered one stays, as
	// nil, so that a duplicate answer is known.
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

// await notes under which name a call is answered.
func (v *entities) await(r *request) {
	v.calls[r.message.ID] = r
	if r.message.Origin != "" {
		v.ids[r.message.Origin] = r.message.ID
	}
}

// An Alias is an answer that came under another name than that of the request
// which the history has, since an attempt of the episode that was lost had sent it.
// A program that knows no origins needs an answer of that name.
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

// SetEntityReorderWindow sets how long entities wait for requests that others
// came before. It is for the code to call before it decides anything. Negative
// means that requests are not ordered.
func (v *entities) SetEntityReorderWindow(d time.Duration) { v.window = d }

// CallEntity decides to call an operation of an entity, and makes f its answer.
func (v *entities) CallEntity(f *Future, target entity.ID, op string, input *string) {
	v.x.check("CallEntity")
	v.checkCall(target)
	v.x.checkLimit()
	r := v.newRequest(target, entity.Request{Operation: op, Input: input})
	if s := v.section; s != nil {
		s.busy[target] = true
		r.section = s
	}
	v.send(f, r, callKind)
}

// SignalEntity decides to send an entity an operation without waiting for it,
// at once or, if due is not zero, then.
func (v *entities) SignalEntity(target entity.ID, op string, input *string, due time.Time) {
	v.x.check("SignalEntity")
	if s := v.section; s != nil && slices.Contains(s.locks, target) {
		panic(v.x.misuse("durable: SignalEntity: Must not signal a locked entity from a critical section: call " + target.String()))
	}
	v.x.checkLimit()
	if !due.IsZero() {
		due = history.Ticks(due)
	}
	r := v.newRequest(target, entity.Request{Operation: op, Input: input, Signal: true, Due: due})
	v.send(nil, r, callKind)
}

// LockEntities decides to lock entities, and makes f complete when all are. It
// begins a critical section, which ends with [Execution.Unlock] or with the
// execution.
//
// The first entity, in the order of [entity.Compare], is asked to lock itself
// and to ask the next. All who lock do so in this order, so that they cannot
// wait for each other (DurableTask.Core/Entities/OrchestrationEntityContext.cs,
// EmitAcquireMessage).
func (v *entities) LockEntities(f *Future, ids []entity.ID) {
	v.x.check("LockEntities")
	switch {
	case v.section != nil:
		panic(v.x.misuse("durable: LockEntities: Must not enter another critical section from within a critical section: unlock the entities first, or lock all of them at once"))
	case len(ids) == 0:
		panic(v.x.misuse("durable: LockEntities was called without entities"))
	}
	v.x.checkLimit()
	locks := slices.Clone(ids)
	slices.SortFunc(locks, entity.Compare)
	locks = slices.Compact(locks)
	r := v.newRequest(locks[0], entity.Request{LockSet: locks})
	v.section = &section{id: r.message.ID, origin: r.message.Origin, locks: locks, busy: make(map[entity.ID]bool)}
	r.section = v.section
	v.send(f, r, lockKind)
}

// Unlock ends the critical section, if there is one. It is made for deferred
// calls: in an orchestrator that is taken out of memory it does nothing.
func (v *entities) Unlock() {
	if v.x.IsUnwinding() {
		return
	}
	v.x.check("Unlock")
	v.release(v.section)
}

// Locked returns the entities of the critical section, in order, nil if there
// is none. They may not be locked yet.
func (v *entities) Locked() []entity.ID {
	if v.section == nil {
		return nil
	}
	return slices.Clone(v.section.locks)
}

// checkCall panics if the critical section does not let target be called.
func (v *entities) checkCall(target entity.ID) {
	s := v.section
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
		panic(v.x.misuse("durable: CallEntity: " + problem + ": " + target.String()))
	}
}

// checkChild panics if a critical section forbids that a child is started.
func (v *entities) checkChild() {
	if v.section != nil {
		panic(v.x.misuse("durable: While holding locks, cannot call suborchestrators: unlock the entities first"))
	}
}

// newRequest returns a request of this execution. Its ID is the one that .NET makes
// when it replays the history (durabletask-dotnet's
// src/Worker/Core/Shims/TaskOrchestrationEntityContext.cs, SendOperationMessage and
// LockEntitiesAsync): it waits for an event of that name.
//
// An episode that runs again after a crash has another time, and so other IDs. Its
// requests are known as the same by their origins.
func (v *entities) newRequest(target entity.ID, m entity.Request) *request {
	m.Parent, m.ParentExecution = v.x.instance.InstanceID, v.x.instance.ExecutionID
	origin := originOf(target.String(), &m)
	if v.counts == nil {
		v.counts = make(map[string]int)
	}
	n := v.counts[origin]
	v.counts[origin]++
	if n > 0 {
		origin = entity.DeriveID(origin, strconv.Itoa(n))
	}
	v.x.guids.requested = true
	if v.x.guids.ours {
		m.ID = origin
	} else {
		m.ID, m.Origin = v.x.requestGUID().String(), origin
	}
	return &request{target: target, message: &m}
}

// send labels a request and decides to send it.
func (v *entities) send(f *Future, r *request, k kind) {
	to, m := r.target.String(), r.message
	if m.Due.IsZero() {
		window := v.window
		if window == 0 {
			window = entity.DefaultReorderWindow
		}
		v.sorter.Label(m, to, v.x.now, window)
	}
	a := &SendEvent{InstanceID: to, Name: entity.EventName(m.Due, v.x.now), Input: new(m.Encode())}
	v.x.actions.add(a, &a.ID)
	if v.pending == nil {
		v.pending, v.calls, v.ids = make(map[int]*request), make(map[string]*request), make(map[string]string)
	}
	v.pending[a.ID] = r
	if f == nil {
		return
	}
	r.future = f
	f.x, f.id, f.kind, f.name = v.x, a.ID, k, m.Operation
	v.await(r)
	v.answerEarly(r)
}

// answerEarly answers a call whose answer came first: the checkpoint that it was
// made in was lost after the request was sent. It reports whether there was one.
func (v *entities) answerEarly(r *request) (answered bool) {
	for _, name := range []string{cmp.Or(r.message.Origin, r.message.ID), r.message.ID} {
		for e := v.x.events.take(name); e != nil; e = v.x.events.take(name) {
			answered = v.answer(e) || answered
		}
	}
	return answered
}

// sent notes that the history has a request which was decided on now: its ID
// and label count, and not those made anew, which may be another program's.
func (v *entities) sent(e *history.EventSent) {
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
	if r.future != nil && v.answerEarly(r) {
		v.x.run()
	}
}

// trackLocks keeps book of the locks that the history has, for when the code does
// something else.
func (v *entities) trackLocks(e *history.EventSent) {
	if !history.IsEntity(e.InstanceID) {
		return
	}
	switch {
	case entity.IsRelease(e.Name):
		v.held = nil
	case e.Input != nil && strings.Contains(*e.Input, `"lockset"`):
		if r, err := entity.DecodeRequest(e.Input); err == nil && r.IsLock() {
			v.held = &section{id: r.ID, origin: r.Origin, locks: r.LockSet}
		}
	}
}

// answer gives an event to the call that it answers, if it does so, and reports
// whether it is an answer.
func (v *entities) answer(e *history.EventRaised) bool {
	id := v.idAnswered(e)
	r, ok := v.calls[id]
	if !ok || r == nil {
		return ok
	}
	v.calls[id] = nil
	if !v.x.replaying && !strings.EqualFold(e.Name, id) {
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
func (v *entities) isAnswer(e *history.EventRaised) bool {
	_, ok := v.calls[v.idAnswered(e)]
	return ok
}

// release decides to give up the locks of a critical section, if there is one.
func (v *entities) release(s *section) {
	v.section = nil
	if s == nil {
		return
	}
	name, text := entity.NewRelease(entity.Release{Parent: v.x.instance.InstanceID, ID: s.id, Origin: s.origin})
	for _, id := range s.locks {
		a := &SendEvent{InstanceID: id.String(), Name: name, Input: &text}
		v.x.actions.add(a, &a.ID)
	}
}

// releaseRecorded gives up the locks of an execution whose code does something
// else than its history has, before the end that was decided on.
func (v *entities) releaseRecorded() {
	if v.held == nil {
		return
	}
	v.x.actions.drop(v.x.complete)
	v.x.actions.next = v.x.complete.ID
	v.release(v.held)
	v.held = nil
	v.x.actions.add(v.x.complete, &v.x.complete.ID)
}

// EntityCalls returns the calls of entities and requests for locks that the
// orchestrator has made and that are not answered, in the order of their numbers.
func (v *entities) EntityCalls() []EntityCall {
	if v.x.complete != nil || v.x.over {
		return nil
	}
	var all []EntityCall
	for _, r := range v.calls {
		if r != nil && r.future != nil {
			all = append(all, EntityCall{r.future, r.target, r.message.LockSet})
		}
	}
	slices.SortFunc(all, func(a, b EntityCall) int { return cmp.Compare(a.id, b.id) })
	return all
}

// An EntityCall is a call of an entity, or a request for locks, that is not
// answered yet.
type EntityCall struct {
	*Future
	Target entity.ID
	Locks  []entity.ID // nil if it is a call
}
