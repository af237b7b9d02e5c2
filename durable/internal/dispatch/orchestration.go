package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// orchestratorName returns the name of a work item's orchestrator, empty if its start
// has not come.
func orchestratorName(w *provider.OrchestrationWorkItem) string {
	if start := startOf(history.StartOf(w.History), w.Messages); start != nil {
		return start.Name
	}
	return ""
}

// startOf returns start, or if that is nil the first start event among messages, nil if there
// is none.
func startOf(start *history.ExecutionStarted, messages []provider.TaskMessage) *history.ExecutionStarted {
	for i := 0; start == nil && i < len(messages); i++ {
		start, _ = messages[i].Event.(*history.ExecutionStarted)
	}
	return start
}

// A session handles an instance from the delivery of its work item to its release.
type session struct {
	d     *Dispatcher
	live  lifetimes
	item  *provider.OrchestrationWorkItem
	label string
	work  string       // the key under which crashes are counted
	log   *slog.Logger // with the current execution's IDs
	x     *execution

	hasRoom bool // of an entity: it has a place
	payload int  // bytes that the dispatcher has admitted
	outcome metering.Outcome
	metered func(name string, o metering.Outcome) // ends the measurement that begin began, nil if there is none
}

// name returns the name of the orchestrator or entity, empty if it is not known.
func (s *session) name() string {
	if s.x == nil {
		return entityName(s.item)
	}
	if s.x.start == nil {
		return ""
	}
	return s.x.start.Name
}

func (s *session) logFor(i history.OrchestrationInstance) {
	s.log = s.d.log.With("instanceId", i.InstanceID, "executionId", i.ExecutionID)
}

// begin begins to measure an episode or a batch.
func (s *session) begin() {
	kind := metering.Orchestration
	if s.x == nil {
		kind = metering.Entity
	}
	s.outcome, s.metered = metering.Completed, s.d.config.Meter.Begin(kind, s.d.config.Now)
}

// end ends the measurement of the episode or batch, if one has begun.
func (s *session) end() {
	if s.metered != nil {
		s.metered(s.name(), s.outcome)
		s.metered = nil
	}
}

// next waits for the instance's next messages as one of the idle sessions. It returns
// none if the session is to end: it was idle for too long, has to give way, the payload of
// the messages does not fit beside other instances, or the worker stops. Size is the
// instance's size in memory, in bytes.
func (s *session) next(among *idle, size int) []provider.TaskMessage {
	s.end()
	s.leavePayload() // an idle session counts in among
	ctx, leave := among.enter(s.live.fetch, size)
	goesOn := false
	defer func() { leave(goesOn) }()
	messages, err := s.item.Session.Next(ctx, s.d.config.ExtendedSessionIdle)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot wait for the instance's next messages", "error", err)
	}
	if err != nil || len(messages) == 0 {
		return nil
	}
	if size += payloadOfMessages(messages); !s.d.payloads.tryEnter(size) {
		s.abandon(&provider.HeldError{Cause: errNoRoom, Until: s.d.config.Now().Add(time.Second)}) // then it waits for its turn
		return nil
	}
	s.payload, goesOn = size, true
	return messages
}

// leavePayload returns the admitted bytes.
func (s *session) leavePayload() {
	s.d.payloads.leave(s.payload)
	s.payload = 0
}

// run runs episodes until the instance ends, has nothing more to do for now, or
// something fails.
func (s *session) run() {
	past, messages := s.item.History, s.item.Messages
	s.x.start = history.StartOf(past)
	s.tellTakenUp(past)
	traced := s.d.config.Tracer.Instance(past)
	for {
		began := s.x.start == nil
		s.d.config.Stalls.resume(startOf(s.x.start, messages), messages)
		cp, dropped, err := s.decide(past, messages)
		if s.refuse(err, messages) {
			return
		}
		traced.Stamp(cp, s.d.config.Now())
		if err := s.item.Session.Commit(s.live.io, cp); err != nil {
			s.commitFailed(err)
			return
		}
		s.d.committing.worked()
		s.d.config.Waiting.remove(cp.Instance.InstanceID, "orchestrator")
		if len(cp.NewEvents) > 0 {
			s.d.noCrash(s.work)
		}
		if hasResumption(messages) {
			s.d.resumed(cp.Instance.InstanceID)
		}
		traced.Committed(cp, s.d.config.Now())
		if began && s.x.code != nil {
			s.log.Debug("orchestration has begun", "event", "FunctionStarting", "name", s.x.start.Name)
		}
		s.logTaken(messages, dropped)
		if cp.ContinuedAsNew {
			s.log.Debug("orchestration continues as new", "event", "FunctionCompleted", "name", s.name(), "continuedAsNew", true)
			s.logFor(cp.Instance)
		}
		logScheduled(s.log, s.name(), cp)
		s.report(cp)
		s.tell(cp, began)
		if s.x.ended {
			s.d.config.Stalls.remove(cp.Instance.InstanceID)
		}
		if s.x.ended || s.x.start == nil || s.x.code == nil || !s.d.config.ExtendedSessions {
			return
		}
		switch {
		case s.x.live != nil:
			past = nil // the execution in memory has seen it all
		case cp.ContinuedAsNew:
			past = cp.NewEvents // of a generation that is yet to run
		}
		if messages = s.next(&s.d.orchestrations.idle, s.x.size()); len(messages) == 0 {
			return
		}
		s.begin()
	}
}

// decide is [execution.take], and logs the messages that it drops.
func (s *session) decide(past []history.Event, messages []provider.TaskMessage) (*provider.Checkpoint, []droppedMessage, error) {
	x := s.x
	var cp *provider.Checkpoint
	var dropped []droppedMessage
	var err error
	broken := s.runTurn(func() { cp, dropped, err = x.take(s.d.functions, s.item.Instance, past, messages) })
	if broken != nil {
		return nil, nil, broken
	}
	for _, m := range dropped {
		s.log.Info("dropped a message", "eventType", m.message.Event.Type(), "reason", m.reason)
	}
	return cp, dropped, err
}

// refuse abandons the instance, whose messages were not taken, if err is not nil. It reports
// whether it did.
func (s *session) refuse(err error, messages []provider.TaskMessage) bool {
	if err == nil {
		return false
	}
	if stall, ok := errors.AsType[*stall](err); ok {
		s.giveUp(stall, messages)
		return true
	}
	if broken, ok := errors.AsType[*panicError](err); ok {
		s.logBroken(broken)
	} else if unknown, ok := errors.AsType[*unknownFunctionError](err); ok {
		log := s.log
		if difference, ok := errors.AsType[*replay.NonDeterminismError](err); ok {
			log = log.With("error", difference)
		}
		log.Log(context.Background(), s.d.waits(s.item.Instance.InstanceID, unknown),
			"orchestration is held back: "+unknown.why(), "name", unknown.name, "version", unknown.version)
	} else {
		s.log.Error("cannot run the episode", "error", err)
	}
	s.abandon(err)
	return true
}

// giveUp hands an instance back whose code was given up. It is delivered again soon, and then
// runs without code.
func (s *session) giveUp(it *stall, messages []provider.TaskMessage) {
	s.logBroken(it)
	if it.isStopping {
		s.abandon(errStopping)
		return
	}
	it.resumed = resumedAt(messages)
	if s.d.config.Stalls.add(it) {
		s.log.Error("orchestrator is stopped: it did not yield in several instances, and this process runs no more of them until one is suspended and resumed",
			"name", it.start.Name, "version", it.start.Version, "instances", maxStalls)
	}
	s.abandon(&provider.HeldError{Cause: it, Until: s.d.config.Now().Add(time.Second)})
}

// logBroken logs the error of a turn.
func (s *session) logBroken(err error) {
	var broken *panicError
	var it *stall
	switch {
	case errors.As(err, &broken) && broken.value == nil:
		s.log.Error(broken.Error())
	case errors.As(err, &broken):
		s.log.Error("panic while handling the instance", "panic", broken.value, "stack", string(broken.stack))
	case errors.As(err, &it):
		log := s.log.With("name", it.start.Name, "running", it.running.Round(time.Millisecond))
		if it.isNewStack {
			log = log.With("stack", it.stack)
		}
		switch {
		case it.foreign != nil:
			log.Error("orchestrator was given up: it waits for a goroutine that made a durable call", "error", it.foreign)
		case it.isStopping:
			log.Warn("orchestrator was given up: it does not yield, and the worker stops")
		default:
			log.Error("orchestrator was given up: it does not yield; it must wait for durable tasks only")
		}
	}
}

func (s *session) commitFailed(err error) {
	if errors.Is(err, provider.ErrSessionLost) {
		s.log.Warn("another worker has taken the instance over; the episode does not count", "event", "FunctionAborted")
	} else {
		s.d.committing.failed(err)
	}
	s.abandon(fmt.Errorf("commit checkpoint: %w", err))
}

func (s *session) abandon(cause error) {
	s.outcome = metering.Abandoned
	ctx, cancel := s.live.handBack()
	defer cancel()
	if err := s.item.Session.Abandon(ctx, cause); err != nil {
		s.log.Warn("cannot hand the instance back", "error", err)
	}
}

func (s *session) release() {
	ctx, cancel := s.live.handBack()
	defer cancel()
	if err := s.item.Session.Release(ctx); err != nil {
		s.log.Warn("cannot release the instance", "error", err)
	}
}

// report logs what an episode came to.
func (s *session) report(cp *provider.Checkpoint) {
	if !s.x.ended {
		s.log.LogAttrs(context.Background(), slog.LevelDebug, "committed a checkpoint", slog.String("event", "FunctionAwaited"),
			slog.Int("events", len(cp.NewEvents)), slog.Int("activities", len(cp.Activities)),
			slog.Int("timers", len(cp.Timers)), slog.Int("messages", len(cp.Messages)), slog.Bool("continuedAsNew", cp.ContinuedAsNew))
		return
	}
	for _, e := range cp.NewEvents {
		end, ok := e.(*history.ExecutionCompleted)
		if !ok {
			continue
		}
		level := slog.LevelInfo
		if end.Status == history.Failed {
			s.outcome, level = metering.Failed, slog.LevelError
		}
		attrs := []slog.Attr{slog.String("event", endEvent(end.Status)), slog.String("name", s.x.start.Name), slog.String("status", end.Status.String())}
		s.log.LogAttrs(context.Background(), level, "orchestration has ended", append(attrs, failureAttrs(end.Failure)...)...)
	}
}

// failureAttrs returns the attributes that log a failure, none if f is nil.
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
		// No worker can ever run it.
		s.log.Error("dropped messages to what is no entity", "error", err, "messages", len(s.item.Messages))
		if err := s.item.Session.Commit(s.live.io, &provider.Checkpoint{Instance: s.item.Instance}); err != nil {
			s.commitFailed(err)
		}
		return
	}
	e := &entityRun{
		settled: &s.d.settled, instanceID: s.item.Instance.InstanceID, code: code, settings: s.d.config.Entities.settingsOn(s.d.provider),
		now: s.d.config.Now, newID: s.d.config.NewID, log: s.log, watchdog: s.d.watchdog, label: s.label, traced: s.d.config.Tracer.Entity(s.item.Instance.InstanceID),
		stopping: func() bool { return s.live.fetch.Err() != nil },
	}
	past, messages := s.item.History, s.item.Messages
	for {
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
		if past, messages = nil, s.nextForEntity(e.size()); len(messages) == 0 {
			return
		}
	}
}

// nextForEntity waits for the entity's next messages, without a place meanwhile. It
// returns none if the session is to end.
func (s *session) nextForEntity(size int) []provider.TaskMessage {
	s.leaveRoom()
	messages := s.next(&s.d.idleEntities, size)
	if len(messages) == 0 {
		return nil
	}
	if !acquire(s.live.fetch, s.d.entities) {
		return nil // release hands the messages back
	}
	s.hasRoom = true
	s.begin()
	return messages
}

// leaveRoom gives back the place of the entity, if it has one.
func (s *session) leaveRoom() {
	if s.hasRoom {
		s.hasRoom = false
		<-s.d.entities
	}
}

// logTaken logs the messages of a committed episode by the names of .NET
// (WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs). It does not read
// histories: a replay logs nothing again, and messages of a generation that has
// continued as new are logged, too. Dropped are some of the messages, in the same
// order.
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

// tell calls Lifecycle for what a committed checkpoint began and ended. Began says
// that its episode was the first of the execution. An execution that continues as new
// has completed (WebJobs.Extensions.DurableTask/OutOfProcMiddleware.cs,
// CallOrchestratorAsync). A panic of Lifecycle does not end the session.
func (s *session) tell(cp *provider.Checkpoint, began bool) {
	listen := s.d.config.Lifecycle
	if listen == nil || s.x.start == nil {
		return
	}
	of := func(status history.RuntimeStatus, reason string) {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic in what listens to the lifecycle of instances", "panic", v)
			}
		}()
		listen(LifecycleEvent{Name: s.x.start.Name, InstanceID: cp.Instance.InstanceID, Status: status, Reason: reason})
	}
	if began {
		of(history.Running, "")
	}
	if cp.ContinuedAsNew {
		of(history.Completed, "")
		of(history.Running, "")
	}
	if !s.x.ended {
		return
	}
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok {
			of(end.Status, reasonOf(end))
		}
	}
}

// tellTakenUp logs that an instance continues here after another process died,
// stopped or lost its partition: how far it had come, and what it waits for.
func (s *session) tellTakenUp(past []history.Event) {
	if len(past) == 0 {
		return
	}
	left := past[len(past)-1].Head().Timestamp
	if !left.Before(s.item.OwnedSince) {
		return
	}
	s.log.Info("instance is taken up where another process left it", "name", s.name(),
		"events", len(past), "waitsFor", openActions(past), "leftAt", left.UTC().Format(time.RFC3339Nano))
}

// runTurn runs f, which runs code of s.x, on another goroutine. The error is a *panicError, or
// a *stall if the turn was given up: then s.x is a new execution that has run nothing, and what
// f did or does must not be used.
func (s *session) runTurn(f func()) error {
	t := &turn{log: s.log, label: s.label, over: make(chan error, 1)}
	x := s.x
	x.turn = t
	go s.onTurn(t, x, f)
	var err error
	select {
	case err = <-t.over:
	case <-s.live.work.Done():
		s.d.watchdog.hurry(t)
		err = <-t.over
	}
	if stall, ok := err.(*stall); ok { //nolint:errorlint // it is not wrapped
		s.x = &execution{start: stall.start}
	}
	return err
}

// onTurn is the turn's goroutine.
func (s *session) onTurn(t *turn, x *execution, f func()) {
	returned := false
	defer func() {
		ended := endOf(recover(), returned)
		if s.d.watchdog.end(t) {
			t.over <- ended
			return
		}
		x.close()
	}()
	f()
	returned = true
}

// limit runs f, which runs code of x, on the turn's goroutine while the watchdog watches it. It
// ends the goroutine if the turn was given up.
func (s *session) limit(x *execution, f, late func()) error {
	s.d.watchdog.watch(x.turn, x.start, x.progress)
	f()
	if !s.d.watchdog.unwatch(x.turn) {
		late()
		runtime.Goexit()
	}
	return nil
}

// close unwinds the orchestrator if it is in memory.
func (s *session) close() {
	if s.x.live == nil || s.x.ended {
		s.x.close() // no code is left to unwind
		return
	}
	x := s.x
	err := s.runTurn(func() { _ = x.limit(x, x.close, func() {}) })
	if err != nil {
		s.logBroken(err)
	}
}
