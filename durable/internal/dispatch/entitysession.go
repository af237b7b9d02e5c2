package dispatch

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// maxEntities returns how many entities may be worked on at once.
func maxEntities(cfg Config) int {
	if n := cfg.Entities.MaxConcurrent; n > 0 {
		return n
	}
	return cfg.MaxConcurrentOrchestrators
}

// maxWaitingEntities is how many entities that were handed out may wait for room.
// Any more take the room of orchestrations: what waits is kept in memory.
const maxWaitingEntities = 1000

// enterEntity waits until there is room for one more entity, and reports whether
// there is: not if the worker stops. It calls free to give back the room of an
// orchestration, which the entity does not need.
func (d *Dispatcher) enterEntity(live lifetimes, free func()) bool {
	defer func() { free() }()
	select {
	case d.entities <- struct{}{}:
		return true
	case d.waiting <- struct{}{}:
		free()
		free = func() { <-d.waiting }
	case <-live.fetch.Done():
		return false
	}
	select {
	case d.entities <- struct{}{}:
		return true
	case <-live.fetch.Done():
		return false
	}
}

// runEntity works on an entity that was handed out, when there is room for one
// more.
func (d *Dispatcher) runEntity(live lifetimes, w *provider.OrchestrationWorkItem, it *item, free func()) {
	s := &session{d: d, live: live, item: w, work: it.work}
	s.logFor(w.Instance)
	defer s.release()
	if !d.enterEntity(live, free) {
		s.abandon(errStopping)
		return
	}
	s.hasRoom = true
	defer s.leaveRoom()

	s.outcome = metering.Completed
	end := d.config.Meter.Begin(metering.Entity, d.config.Now)
	defer func() { end(entityName(w), s.outcome) }()
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
	s.runEntity()
	handledAll = true
}

// entityName returns the name of the entity that was handed out.
func entityName(w *provider.OrchestrationWorkItem) string {
	id, _ := entity.ParseID(w.Instance.InstanceID)
	return id.Name
}

// runEntity runs batches until the entity has nothing more to do for now, or
// something fails.
func (s *session) runEntity() {
	code, err := findEntity(s.d.functions, s.item.Instance.InstanceID)
	if err == nil && s.d.config.Crashes.Holds(s.work) {
		err = &unknownFunctionError{kind: "entity", name: entityName(s.item), crashed: true}
	}
	if unknown, ok := errors.AsType[*unknownFunctionError](err); ok {
		if held := s.d.holdEntity(s.item, unknown); held != nil {
			s.log.Log(s.live.io, s.d.waits(s.item.Instance.InstanceID, unknown), "entity is held back: "+unknown.why(), "name", unknown.name)
			s.abandon(held)
			return
		}
		s.log.Warn("operations of an entity fail: this worker does not know its function", "name", unknown.name)
		code = unknown.failAll
	} else if err != nil {
		// No worker will ever make something of it.
		s.log.Error("dropped messages to what is no entity", "error", err, "messages", len(s.item.Messages))
		if err := s.item.Session.Commit(s.live.io, &provider.Checkpoint{Instance: s.item.Instance}); err != nil {
			s.commitFailed(err)
		}
		return
	}
	e := &entityRun{
		settled: &s.d.settled, instanceID: s.item.Instance.InstanceID, code: code, settings: s.d.config.Entities.settings(),
		now: s.d.config.Now, newID: s.d.config.NewID, log: s.log, traced: s.d.config.Tracer.Entity(s.item.Instance.InstanceID),
		stopping: func() bool { return s.live.fetch.Err() != nil },
	}
	past, messages := s.item.History, s.item.Messages
	for extended := false; ; past = nil {
		cp, err := e.take(s.live.work, s.live.io, past, messages)
		if err != nil {
			s.log.Error("cannot run the entity's operations", "event", "EntityBatchFailed", "name", entityName(s.item), "error", err)
			s.abandon(err)
			return
		}
		if err := s.item.Session.Commit(s.live.io, cp); err != nil {
			s.commitFailed(err)
			return
		}
		s.d.committing.worked()
		s.d.config.Waiting.remove(cp.Instance.InstanceID, "entity")
		s.d.noCrash(s.work)
		e.traced.Committed()
		if settler, ok := s.item.Session.(provider.Settler); !ok || settler.Settled() {
			s.d.settled.add(cp.Instance)
		}
		e.logCommitted(entityName(s.item), cp)
		if !s.d.config.ExtendedSessions {
			return
		}
		if !extended {
			select {
			case s.d.extendedEntities <- struct{}{}:
				extended = true
				defer func() { <-s.d.extendedEntities }()
			default:
				return
			}
		}
		if messages = s.nextForEntity(); len(messages) == 0 {
			return
		}
	}
}

// nextForEntity waits for the entity's next messages, and takes no room meanwhile.
// It returns none if the session is to end.
func (s *session) nextForEntity() []provider.TaskMessage {
	s.leaveRoom()
	messages, err := s.item.Session.Next(s.live.fetch, s.d.config.ExtendedSessionIdle)
	if err != nil && s.live.fetch.Err() == nil {
		s.log.Warn("cannot wait for the entity's next messages", "error", err)
	}
	if err != nil || len(messages) == 0 {
		return nil
	}
	select {
	case s.d.entities <- struct{}{}:
		s.hasRoom = true
		return messages
	case <-s.live.fetch.Done():
		return nil // they are handed back when the session is released
	}
}

// leaveRoom gives back the room that the entity takes up, if it does.
func (s *session) leaveRoom() {
	if s.hasRoom {
		s.hasRoom = false
		<-s.d.entities
	}
}
