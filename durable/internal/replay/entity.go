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

// entities is the part of an execution that sends requests to entities and receives their
// answers (DurableTask.Core/Entities/OrchestrationEntityContext.cs).
type entities struct {
	x      *Execution
	sorter entity.Sorter
	window time.Duration  // 0: the default; negative: requests are not ordered
	counts map[string]int // requests sent, by the origin of the first with the same content
	// pending holds requests whose event is not in the history yet, by action number.
	pending map[int]*request
	// calls holds the requests that expect an answer, by ID. An answered request stays as nil,
	// to recognize duplicate answers.
	calls         map[string]*request
	idByOrigin    map[string]string // IDs of calls, by origin
	aliases       []Alias
	section       *section // nil outside of a critical section
	recordedLocks *section // the critical section according to the recorded events
}

// A request is a request to an entity.
type request struct {
	message *entity.Request
	target  entity.ID
	future  *Future // nil for a signal
	section *section
}

// A section is a critical section. It exists from the moment its locks are requested.
type section struct {
	id     string // of the lock request
	origin string
	locks  []entity.ID
	locked bool
	busy   map[entity.ID]bool // called and not answered yet
}

// originOf returns the origin of the first request with this content. The origin identifies the
// request when an episode runs again. It therefore depends on the content only, and not on the
// due time, which changes with the time of the episode.
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

// await registers the ID and the origin under which a call is answered.
func (v *entities) await(r *request) {
	v.calls[r.message.ID] = r
	if r.message.Origin != "" {
		v.idByOrigin[r.message.Origin] = r.message.ID
	}
}

// An Alias is an answer under a different name than the recorded request expects. A lost
// attempt of the episode had sent the request with another ID. A program that ignores origins
// needs the answer under Name.
type Alias struct {
	Answer *history.EventRaised
	Name   string
}

// idAnswered returns the ID of the call that an event answers. If the event is not an answer,
// no call has the ID. An origin takes precedence over the event's name, because generations
// that start at the same time create calls with equal IDs.
func (v *entities) idAnswered(e *history.EventRaised) string {
	if origin := entity.OriginOfAnswer(e); origin != "" {
		return v.idByOrigin[origin]
	}
	return strings.ToLower(e.Name)
}

// SetEntityReorderWindow sets how long entities wait for an earlier request that is missing.
// The code calls it before its first decision. 0 means [entity.DefaultReorderWindow]; a
// negative duration disables ordering.
func (v *entities) SetEntityReorderWindow(d time.Duration) { v.window = d }

// CallEntity calls an operation of an entity, and ties f to its answer.
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

// SignalEntity sends an operation to an entity without waiting for a result. The entity runs it
// at due, or immediately if due is zero.
func (v *entities) SignalEntity(target entity.ID, op string, input *string, due time.Time) {
	v.x.check("SignalFrom")
	if s := v.section; s != nil && slices.Contains(s.locks, target) {
		panic(v.x.misuse("durable: SignalFrom: Must not signal a locked entity from a critical section: call " + target.String()))
	}
	v.x.checkLimit()
	if !due.IsZero() {
		due = history.TruncateToTicks(due)
	}
	r := v.newRequest(target, entity.Request{Operation: op, Input: input, Signal: true, Due: due})
	v.send(nil, r, callKind)
}

// LockEntities requests the locks of entities, and ties f to the moment when all are locked. It
// starts a critical section, which ends with [Execution.Unlock] or with the execution.
//
// The request goes to the first entity in the order of [entity.Compare]. Each entity locks
// itself and passes the request on to the next. All orchestrations use the same order, which
// prevents deadlocks (DurableTask.Core/Entities/OrchestrationEntityContext.cs,
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

// Unlock ends the critical section, if there is one. It is meant for deferred calls: it does
// nothing while the orchestrator is unwound.
func (v *entities) Unlock() {
	if v.x.IsUnwinding() {
		return
	}
	v.x.check("Unlock")
	v.release(v.section)
}

// LockedEntities returns the entities of the critical section in lock order, or nil outside of one.
// They may still be waiting for their locks.
func (v *entities) LockedEntities() []entity.ID {
	if v.section == nil {
		return nil
	}
	return slices.Clone(v.section.locks)
}

// checkCall panics if the critical section forbids a call of target.
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

// checkChild panics inside a critical section, where children cannot be started.
func (v *entities) checkChild() {
	if v.section != nil {
		panic(v.x.misuse("durable: While holding locks, cannot call suborchestrators: unlock the entities first"))
	}
}

// newRequest returns a request of this execution. Its ID is the one that .NET creates when it
// replays the history, where it waits for an event with that name (durabletask-dotnet's
// src/Worker/Core/Shims/TaskOrchestrationEntityContext.cs, SendOperationMessage and
// LockEntitiesAsync).
//
// IDs depend on the time of the episode. An episode that runs again after a crash therefore
// creates different IDs; receivers recognize its requests by their origins.
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
	if v.x.guids.idIsOrigin {
		m.ID = origin
	} else {
		m.ID, m.Origin = v.x.requestGUID().String(), origin
	}
	return &request{target: target, message: &m}
}

// send labels a request for the receiver's sorter and adds the action that sends it.
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
		v.pending, v.calls, v.idByOrigin = make(map[int]*request), make(map[string]*request), make(map[string]string)
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

// answerEarly delivers answers that arrived before replay made the request: the request was
// sent, but its checkpoint was lost. It reports whether it found one.
func (v *entities) answerEarly(r *request) (answered bool) {
	for _, name := range []string{cmp.Or(r.message.Origin, r.message.ID), r.message.ID} {
		for e := v.x.events.take(name); e != nil; e = v.x.events.take(name) {
			answered = v.answer(e) || answered
		}
	}
	return answered
}

// matchRecorded handles the event that records a pending request. The recorded ID and label replace the
// new ones, because another program may have made them.
func (v *entities) matchRecorded(e *history.EventSent) {
	r := v.pending[e.EventID]
	if r == nil {
		return
	}
	delete(v.pending, e.EventID)
	recorded, err := entity.DecodeRequest(e.Input)
	if err != nil {
		return // the history has no inputs
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
	v.sorter.RecordSent(recorded, e.InstanceID)
	if r.future != nil && v.answerEarly(r) {
		v.x.run()
	}
}

// trackLocks tracks the locks that the history says are held. They are released if the code
// diverges from the history.
func (v *entities) trackLocks(e *history.EventSent) {
	if !history.IsEntity(e.InstanceID) {
		return
	}
	switch {
	case entity.IsRelease(e.Name):
		v.recordedLocks = nil
	case e.Input != nil && strings.Contains(*e.Input, `"lockset"`):
		if r, err := entity.DecodeRequest(e.Input); err == nil && r.IsLock() {
			v.recordedLocks = &section{id: r.ID, origin: r.Origin, locks: r.LockSet}
		}
	}
}

// answer passes an event to the call that it answers. It reports whether the event is an
// answer, even if the call has been answered before.
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

// isAnswer reports whether an event answers a call, including a call that has been answered.
func (v *entities) isAnswer(e *history.EventRaised) bool {
	_, ok := v.calls[v.idAnswered(e)]
	return ok
}

// release ends the critical section. It sends the releases of the locks of s, if s is not nil.
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

// releaseRecorded releases the locks that the history says are held, for an execution whose
// code diverged. The releases come before the final action.
func (v *entities) releaseRecorded() {
	if v.recordedLocks == nil {
		return
	}
	v.x.actions.drop(v.x.complete)
	v.x.actions.next = v.x.complete.ID
	v.release(v.recordedLocks)
	v.recordedLocks = nil
	v.x.actions.add(v.x.complete, &v.x.complete.ID)
}

// EntityCalls returns the unanswered calls of entities and lock requests, in the order of their
// numbers.
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

// An EntityCall is an unanswered call of an entity, or an unanswered lock request.
type EntityCall struct {
	*Future
	Target entity.ID
	Locks  []entity.ID // nil for a call
}
