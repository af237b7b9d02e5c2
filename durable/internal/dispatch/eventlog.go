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

// Names of the kinds of functions in .NET (WebJobs.Extensions.DurableTask/FunctionType.cs).
const (
	typeActivity     = "Activity"
	typeOrchestrator = "Orchestrator"
	typeEntity       = "Entity"
)

// roundTrip is the format of times in .NET's logs.
const roundTrip = "2006-01-02T15:04:05.0000000Z07:00"

// instanceLog returns log with the IDs of an instance and of the trace in traced, which may be nil.
func instanceLog(log *slog.Logger, i history.OrchestrationInstance, traced *history.TraceContext) *slog.Logger {
	fields := []any{"instanceId", i.InstanceID, "executionId", i.ExecutionID}
	if id := traced.TraceID(); id != "" {
		fields = append(fields, "traceId", id)
	}
	return log.With(fields...)
}

// isAnswer reports whether an event is an entity's answer: its name is the request ID, a GUID.
func isAnswer(e *history.EventRaised) bool {
	if len(e.Name) != len(uuid.Nil.String()) {
		return false
	}
	_, err := uuid.Parse(e.Name)
	return err == nil
}

// logScheduled logs the functions and timers that a committed checkpoint of the function by has
// scheduled. The log has no name, because the records have the names of the scheduled functions.
func logScheduled(log *slog.Logger, by string, cp *provider.Checkpoint) {
	ctx := context.Background()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	scheduled := func(kind, name string, more ...slog.Attr) {
		attrs := []slog.Attr{
			slog.String("event", "FunctionScheduled"), slog.String("name", name), slog.String("functionType", kind), slog.String("reason", by),
		}
		log.LogAttrs(ctx, slog.LevelDebug, "function scheduled", append(attrs, more...)...)
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
			log.LogAttrs(ctx, slog.LevelDebug, "orchestration is waiting for a timer", slog.String("event", "FunctionListening"), slog.String("name", by),
				slog.Int("taskEventId", e.TimerID), fireAt(e.FireAt))
		}
	}
}

// requestOf returns the entity and the operation that an event requests. It returns ok == false
// for lock requests and releases.
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

func fireAt(at time.Time) slog.Attr { return slog.String("fireAt", at.UTC().Format(roundTrip)) }

func reasonAttr(reason *string) slog.Attr {
	if reason == nil {
		return slog.Attr{}
	}
	return slog.String("reason", *reason)
}
