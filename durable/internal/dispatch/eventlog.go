package dispatch

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// What .NET calls the kinds of functions (WebJobs.Extensions.DurableTask/FunctionType.cs).
const (
	typeActivity     = "Activity"
	typeOrchestrator = "Orchestrator"
	typeEntity       = "Entity"
)

// roundTrip is the form in which .NET logs times.
const roundTrip = "2006-01-02T15:04:05.0000000Z07:00"

// logTaken logs what came to an orchestration and is committed, by the names of
// .NET (WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs). It does not look
// at histories: nothing is logged again in replay, and what a generation took
// that has continued as new is logged, too. Dropped are some of the messages, in
// the same order.
func (s *session) logTaken(messages []provider.TaskMessage, dropped []droppedMessage) {
	ctx := context.Background()
	if !s.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	name := slog.String("name", s.name())
	for _, m := range messages {
		if len(dropped) > 0 && dropped[0].message.Event == m.Event {
			dropped = dropped[1:]
			continue
		}
		switch e := m.Event.(type) {
		case *history.TimerFired:
			s.log.LogAttrs(ctx, slog.LevelInfo, "a timer has expired", slog.String("event", "TimerExpired"), name,
				slog.Int("taskEventId", e.TimerID), fireAt(e.FireAt))
		case *history.EventRaised:
			if isAnswer(e) {
				s.log.LogAttrs(ctx, slog.LevelDebug, "an entity has answered", slog.String("event", "EntityResponseReceived"), name,
					slog.String("requestId", e.Name))
				continue
			}
			s.log.LogAttrs(ctx, slog.LevelInfo, "an event has come", slog.String("event", "ExternalEventRaised"), name, slog.String("eventName", e.Name))
		case *history.ExecutionSuspended:
			s.log.LogAttrs(ctx, slog.LevelInfo, "orchestration is suspended", slog.String("event", "SuspendingOrchestration"), name, reasonAttr(e.Reason))
		case *history.ExecutionResumed:
			s.log.LogAttrs(ctx, slog.LevelInfo, "orchestration is resumed", slog.String("event", "ResumingOrchestration"), name, reasonAttr(e.Reason))
		}
	}
}

// isAnswer reports whether an event is an entity's answer, which is called after
// the ID of the request, a GUID, unlike events that people name.
func isAnswer(e *history.EventRaised) bool {
	if len(e.Name) != len(uuid.Nil.String()) {
		return false
	}
	_, err := uuid.Parse(e.Name)
	return err == nil
}

// logScheduled logs what a committed checkpoint of the function by has asked
// others to do.
func logScheduled(log *slog.Logger, by string, cp *provider.Checkpoint) {
	ctx := context.Background()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	scheduled := func(kind, name string, more ...slog.Attr) {
		attrs := []slog.Attr{
			slog.String("event", "FunctionScheduled"), slog.String("name", name), slog.String("functionType", kind), slog.String("reason", by),
		}
		log.LogAttrs(ctx, slog.LevelDebug, "a function is scheduled", append(attrs, more...)...)
	}
	for _, m := range cp.Activities {
		if task, ok := m.Event.(*history.TaskScheduled); ok {
			scheduled(typeActivity, task.Name, slog.Int("taskEventId", task.EventID))
		}
	}
	for _, m := range cp.Messages {
		switch e := m.Event.(type) {
		case *history.ExecutionStarted:
			scheduled(typeOrchestrator, e.Name, slog.String("targetInstanceId", e.Instance.InstanceID))
		case *history.EventRaised:
			if id, op, ok := requestOf(m.Target.InstanceID, e); ok && m.Target.InstanceID != cp.Instance.InstanceID {
				scheduled(typeEntity, id.Name, slog.String("targetInstanceId", m.Target.InstanceID), slog.String("operation", op))
			}
		}
	}
	for _, m := range cp.Timers {
		if e, ok := m.Event.(*history.TimerFired); ok {
			log.LogAttrs(ctx, slog.LevelDebug, "orchestration waits for a timer", slog.String("event", "FunctionListening"), slog.String("name", by),
				slog.Int("taskEventId", e.TimerID), fireAt(e.FireAt))
		}
	}
}

// requestOf returns which operation of which entity an event asks for. One that
// asks for a lock, or gives it up, asks for none.
func requestOf(target string, e *history.EventRaised) (id entity.ID, operation string, ok bool) {
	if !history.IsEntity(target) || !strings.HasPrefix(e.Name, "op") {
		return entity.ID{}, "", false
	}
	id, err := entity.ParseID(target)
	if err != nil {
		return entity.ID{}, "", false
	}
	r, err := entity.DecodeRequest(e.Input)
	if err != nil || r.IsLock() {
		return entity.ID{}, "", false
	}
	return id, r.Operation, true
}

// logCommitted logs what a batch of an entity came to that is committed.
func (e *entityRun) logCommitted(name string, cp *provider.Checkpoint) {
	ctx := context.Background()
	if !e.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	after := e.state.Status()
	if before := e.lockedBy; before != "" && before != after.LockedBy {
		e.log.LogAttrs(ctx, slog.LevelDebug, "an entity is unlocked", slog.String("event", "EntityLockReleased"), slog.String("name", name),
			slog.String("lockedBy", before))
	}
	if after.LockedBy != "" && after.LockedBy != e.lockedBy {
		e.log.LogAttrs(ctx, slog.LevelDebug, "an entity is locked", slog.String("event", "EntityLockAcquired"), slog.String("name", name),
			slog.String("lockedBy", after.LockedBy))
	}
	logScheduled(e.log, name, cp)
	e.log.LogAttrs(ctx, slog.LevelDebug, "committed an entity's checkpoint", slog.String("event", "EntityBatchCompleted"), slog.String("name", name),
		slog.Int("operations", e.ran), slog.Int("messages", len(cp.Messages)), slog.Int("queueSize", after.QueueSize))
}

// logOperation logs what an operation of an entity came to, if it counts.
func (e *entityRun) logOperation(op *entity.Operation, r *entity.Result, took time.Duration) {
	ctx := context.Background()
	if r.Failure != nil {
		attrs := []slog.Attr{slog.String("event", "OperationFailed"), slog.String("name", op.Entity.Name), slog.String("operation", op.Name)}
		e.log.LogAttrs(ctx, slog.LevelWarn, "entity operation failed", append(attrs, failureAttrs(r.Failure)...)...)
		if !e.settings.KeepFailedEffects {
			return
		}
	}
	if !e.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	tell := func(message string, event slog.Attr, more ...slog.Attr) {
		attrs := []slog.Attr{event, slog.String("name", op.Entity.Name), slog.String("operation", op.Name), slog.String("requestId", op.RequestID)}
		e.log.LogAttrs(ctx, slog.LevelDebug, message, append(attrs, more...)...)
	}
	if r.Failure == nil {
		tell("an operation of an entity has completed", slog.String("event", "OperationCompleted"), slog.Duration("duration", took))
	}
	switch {
	case op.State == nil && r.State != nil:
		tell("an entity has come to be", slog.String("event", "EntityStateCreated"))
	case op.State != nil && r.State == nil:
		tell("an entity is deleted", slog.String("event", "EntityStateDeleted"))
	}
}

func fireAt(at time.Time) slog.Attr { return slog.String("fireAt", at.UTC().Format(roundTrip)) }

func reasonAttr(reason *string) slog.Attr {
	if reason == nil {
		return slog.Attr{}
	}
	return slog.String("reason", *reason)
}
