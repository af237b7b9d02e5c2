package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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

// instanceLog returns log with the IDs of an instance and of the trace in traced, which may be nil, and
// with more fields.
func instanceLog(log *slog.Logger, i history.OrchestrationInstance, traced *history.TraceContext, more ...any) *slog.Logger {
	fields := append(make([]any, 0, 10), "instanceId", i.InstanceID, "executionId", i.ExecutionID)
	if id := traced.TraceID(); id != "" {
		fields = append(fields, "traceId", id)
	}
	return log.With(append(fields, more...)...)
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

// logTaken logs the messages of a committed episode under the event names of .NET
// (WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs). It does not use the history, so a
// replay logs nothing twice, and messages of a generation that continued as new are included.
// Dropped is a subset of messages, in the same order.
func logTaken(log *slog.Logger, messages []provider.TaskMessage, dropped []droppedMessage) {
	ctx := context.Background()
	if !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for _, m := range messages {
		if len(dropped) > 0 && dropped[0].message.Event == m.Event {
			dropped = dropped[1:]
			continue
		}
		switch e := m.Event.(type) {
		case *history.TimerFired:
			log.LogAttrs(ctx, slog.LevelInfo, "timer fired", slog.String("event", "TimerExpired"),
				slog.Int("taskEventId", e.TimerID), fireAt(e.FireAt))
		case *history.EventRaised:
			if isAnswer(e) {
				log.LogAttrs(ctx, slog.LevelDebug, "entity response received", slog.String("event", "EntityResponseReceived"),
					slog.String("requestId", e.Name))
				continue
			}
			log.LogAttrs(ctx, slog.LevelInfo, "event received", slog.String("event", "ExternalEventRaised"), slog.String("eventName", e.Name))
		case *history.ExecutionSuspended:
			log.LogAttrs(ctx, slog.LevelInfo, "orchestration suspended", slog.String("event", "SuspendingOrchestration"), reasonAttr(e.Reason))
		case *history.ExecutionResumed:
			log.LogAttrs(ctx, slog.LevelInfo, "orchestration resumed", slog.String("event", "ResumingOrchestration"), reasonAttr(e.Reason))
		}
	}
}

// logBroken logs the error of a turn.
func logBroken(log *slog.Logger, err error) {
	var broken *panicError
	var it *stall
	switch {
	case errors.As(err, &broken) && broken.value == nil:
		log.Error(broken.Error())
	case errors.As(err, &broken):
		log.Error("panic while handling the instance", "panic", broken.value, "stack", string(broken.stack))
	case errors.As(err, &it):
		log := log.With("running", it.running.Round(time.Millisecond))
		if it.isNewStack {
			log = log.With("stack", it.stack)
		}
		switch {
		case it.foreign != nil:
			log.Error("orchestrator was abandoned: it waits for a goroutine that made a durable call", "error", it.foreign)
		case it.isStopping:
			log.Warn("orchestrator was abandoned: it does not yield and the worker is stopping")
		default:
			log.Error("orchestrator was abandoned: it does not yield; it must wait for durable tasks only")
		}
	}
}

// logResumed logs that this process continues an instance of another process, which died, stopped or lost its
// partition. It logs the history's length and the number of open actions. It does not log the delivery of a
// due poll, because the history does not contain the calls of polls.
func logResumed(log *slog.Logger, item *provider.OrchestrationWorkItem) {
	past := item.History
	if len(past) == 0 || !slices.ContainsFunc(item.Messages, func(m provider.TaskMessage) bool { _, polls := m.WokenPolls(); return polls == nil }) {
		return
	}
	left := past[len(past)-1].Head().Timestamp
	if !left.Before(item.OwnedSince) {
		return
	}
	log.Info("resuming instance that another process was running",
		"events", len(past), "waitsFor", openActions(past), "leftAt", left.UTC().Format(time.RFC3339Nano))
}

// logCheckpoint logs the checkpoint of an episode, and the end of the execution if it has ended. It reports
// whether the execution has failed.
func logCheckpoint(log *slog.Logger, cp *provider.Checkpoint, ended bool) (failed bool) {
	if !ended {
		log.LogAttrs(context.Background(), slog.LevelDebug, "committed a checkpoint", slog.String("event", "FunctionAwaited"),
			slog.Int("events", len(cp.NewEvents)), slog.Int("activities", len(cp.Activities)),
			slog.Int("timers", len(cp.Timers)), slog.Int("messages", len(cp.Messages)), slog.Bool("continuedAsNew", cp.ContinuedAsNew))
		return false
	}
	for _, e := range cp.NewEvents {
		end, ok := e.(*history.ExecutionCompleted)
		if !ok {
			continue
		}
		level := slog.LevelInfo
		if end.Status == history.Failed {
			failed, level = true, slog.LevelError
		}
		attrs := []slog.Attr{slog.String("event", endEvent(end.Status)), slog.String("status", end.Status.String())}
		log.LogAttrs(context.Background(), level, "orchestration ended", append(attrs, failureAttrs(end.Failure)...)...)
	}
	return failed
}

// failureAttrs returns the log attributes of a failure, or nil if f is nil.
func failureAttrs(f *history.FailureDetails) []slog.Attr {
	if f == nil {
		return nil
	}
	attrs := []slog.Attr{slog.String("error", f.String())}
	if f.StackTrace != nil {
		attrs = append(attrs, slog.String("stack", *f.StackTrace))
	}
	return attrs
}
