package dispatch

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxEntities returns the maximum number of entities that run at the same time.
func maxEntities(cfg Config) int {
	if n := cfg.Entities.MaxConcurrent; n > 0 {
		return n
	}
	return cfg.MaxConcurrentOrchestrators
}

// maxWaitingEntities is the maximum number of fetched entities that wait for an entity slot. Further ones
// keep their orchestration slot, which limits their number.
const maxWaitingEntities = 1000

// entityName returns the name of a work item's entity.
func entityName(w *provider.OrchestrationWorkItem) string {
	id, _ := entity.ParseID(w.Instance.InstanceID)
	return id.Name
}

// An entitySession runs the batches of one entity.
type entitySession struct{ session }

func newEntitySession(d *Dispatcher, live lifetimes, next *admitted[*provider.OrchestrationWorkItem], it *item) *entitySession {
	s := &entitySession{newSession(d, live, next, it)}
	s.logFor(s.item.Instance, nil)
	return s
}

// handle runs the work item after it has acquired a slot. It calls free to release the orchestration slot
// that the entity was fetched with.
func (s *entitySession) handle(free func()) {
	defer s.releasePayload()
	defer s.release()
	if !s.acquireSlot(free) {
		s.abandon(errStopping)
		return
	}
	s.hasSlot = true
	defer s.releaseSlot()

	s.measure(metering.Entity)
	defer func() { s.endMeasurement(entityName(s.item)) }()
	handledAll := false
	defer func() {
		if handledAll {
			return
		}
		cause := errors.New("the goroutine of the entity was ended by runtime.Goexit")
		if v := recover(); v != nil {
			cause = fmt.Errorf("panic while handling the entity: %v", v)
			s.log.Error("panic while handling the entity", "panic", v, "stack", string(debug.Stack()))
		}
		s.abandon(cause)
	}()
	s.run()
	handledAll = true
}

// acquireSlot acquires a slot for the entity. It returns false if the worker stops first. It calls free to
// release the orchestration slot that the entity was fetched with.
func (s *entitySession) acquireSlot(free func()) bool {
	d := s.d
	defer func() { free() }()
	if s.live.fetch.Err() != nil {
		return false
	}
	select {
	case d.entities <- struct{}{}:
		return true
	default:
	}
	select {
	case d.entities <- struct{}{}:
		return true
	case d.waiting <- struct{}{}:
		free()
		free = func() { <-d.waiting }
	case <-s.live.fetch.Done():
		return false
	}
	return acquire(s.live.fetch, d.entities)
}

// run runs batches until the entity has no more messages, or an error occurs.
func (s *entitySession) run() {
	code, err := findEntity(s.d.functions, s.item.Instance.InstanceID)
	if err == nil && s.d.config.Crashes.IsSetAside(s.work) {
		err = &unknownFunctionError{kind: "entity", name: entityName(s.item), crashed: true}
	}
	if unknown, ok := errors.AsType[*unknownFunctionError](err); ok {
		if held := s.hold(unknown); held != nil {
			s.log.Log(s.live.io, s.d.recordBlocked(s.item.Instance.InstanceID, unknown), "entity is held back: "+unknown.reason())
			s.abandon(held)
			return
		}
		s.log.Warn("operations of an entity fail: this worker does not know its function")
		code = unknown.failAll
	} else if err != nil {
		// No worker can run it.
		s.log.Error("discarded messages to an invalid entity ID", "error", err, "messages", len(s.item.Messages))
		if err := s.item.Session.Commit(s.live.io, &provider.Checkpoint{Instance: s.item.Instance}); err != nil {
			s.abandon(s.commitFailed(err))
		}
		return
	}
	e := &entityRun{
		settled: &s.d.settled, instanceID: s.item.Instance.InstanceID, code: code, settings: s.d.config.Entities.settingsOn(s.d.provider),
		now: s.d.config.Now, newID: s.d.config.NewID, log: s.log, ids: s.ids, watchdog: s.d.watchdog, label: s.label, traced: s.d.config.Tracer.Entity(s.item.Instance.InstanceID),
		stopping: func() bool { return s.live.fetch.Err() != nil },
	}
	past, messages := s.item.History, s.item.Messages
	for {
		cp, err := e.runMessages(s.live.work, s.live.io, past, messages)
		if err != nil {
			s.log.Error("cannot run the entity's operations", "event", "EntityBatchFailed", "error", err)
			s.abandon(err)
			return
		}
		if err := s.item.Session.Commit(s.live.io, cp); err != nil {
			s.abandon(s.commitFailed(err))
			return
		}
		s.d.committing.succeeded()
		s.d.config.Blocked.remove(cp.Instance.InstanceID, "entity")
		s.d.resetCrashes(s.work)
		e.traced.Committed()
		if settler, ok := s.item.Session.(provider.Settler); !ok || settler.Settled() {
			s.d.settled.add(cp.Instance)
		}
		e.logCommitted(entityName(s.item), cp)
		if !s.d.config.ExtendedSessions {
			return
		}
		if past, messages = nil, s.nextMessages(e.size()); len(messages) == 0 {
			return
		}
	}
}

// hold returns the error that holds back the operations of an entity with an unknown function, or nil if
// they fail. An entity without state has not started.
func (s *entitySession) hold(f *unknownFunctionError) error {
	var started bool
	if start := history.StartOf(s.item.History); start != nil {
		state, err := entity.DecodeState(start.Input)
		if err != nil {
			return f
		}
		started = state.Text != nil
	}
	if f.crashed || len(s.item.Messages) == 0 {
		return f
	}
	first := s.item.Messages[0]
	due, policy := first.Event.Head().Timestamp, s.d.config.unknown()
	if delayed, ok := provider.EntityDueTime(first); ok && delayed.After(due) {
		due = delayed
	}
	if policy.fails(due, s.d.config.Now(), started) {
		return nil
	}
	return policy.hold(f, due, started)
}

// nextMessages waits for the entity's next messages without a slot. It returns nil if the
// session must end.
func (s *entitySession) nextMessages(size int) []provider.TaskMessage {
	s.releaseSlot()
	s.endMeasurement(entityName(s.item))
	messages, err := s.next(&s.d.idleEntities, size)
	if err != nil {
		s.abandon(err)
	}
	if len(messages) == 0 {
		return nil
	}
	if !acquire(s.live.fetch, s.d.entities) {
		return nil // release makes the provider deliver the messages again
	}
	s.hasSlot = true
	s.measure(metering.Entity)
	return messages
}

// releaseSlot releases the slot, if the session has one.
func (s *entitySession) releaseSlot() {
	if s.hasSlot {
		<-s.d.entities
		s.hasSlot = false
	}
}
