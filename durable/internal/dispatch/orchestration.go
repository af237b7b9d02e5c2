package dispatch

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// orchestratorName returns the name of a work item's orchestrator, or "" before its start
// arrives.
func orchestratorName(w *provider.OrchestrationWorkItem) string {
	if start := startOfItem(w); start != nil {
		return start.Name
	}
	return ""
}

// startOfItem returns the start event of a work item, or nil if it has none.
func startOfItem(w *provider.OrchestrationWorkItem) *history.ExecutionStarted {
	return startOf(history.StartOf(w.History), w.Messages)
}

// startOf returns start or, if that is nil, the first start event in messages. It may return
// nil.
func startOf(start *history.ExecutionStarted, messages []provider.TaskMessage) *history.ExecutionStarted {
	for i := 0; start == nil && i < len(messages); i++ {
		start, _ = messages[i].Event.(*history.ExecutionStarted)
	}
	return start
}

// An orchestrationSession runs the episodes of one orchestration.
type orchestrationSession struct {
	session
	x        *execution
	steps    *steps              // of the current execution; nil if it has decided none
	deferred *deferredCheckpoint // nil if all episodes are committed
	isExact  bool                // see [provider.ExactlyOnce]
	traced   *tracing.Instance
}

func newOrchestrationSession(d *Dispatcher, live lifetimes, next *admitted[*provider.OrchestrationWorkItem], it *item) *orchestrationSession {
	s := &orchestrationSession{session: newSession(d, live, next, it), isExact: d.isExact()}
	s.hasSlot = true
	s.logFor(s.item.Instance, startOfItem(s.item))
	s.x = &execution{now: d.config.Now, limit: s.limit, stalls: d.config.Stalls, storeInputs: d.config.StoreInputs, holdNonDeterministic: d.config.HoldNonDeterministic}
	s.x.versions = versions{rejects: d.config.CheckVersion, fails: d.config.FailVersionMismatch}
	s.x.unknown = d.config.unknown()
	s.x.crashed = func() bool { return d.config.Crashes.IsSetAside(it.work) }
	s.x.stopping = func() bool { return live.fetch.Err() != nil }
	return s
}

// handle runs the instance's episode, and further episodes during an extended session. It handles every
// failure of the instance. The deferred calls handle panics of this package too.
func (s *orchestrationSession) handle() {
	s.measure(metering.Orchestration)
	defer s.releaseSlot()
	defer s.end()
	handledAll := false
	defer s.releasePayload()
	defer s.release()
	defer func() {
		if handledAll {
			return
		}
		broken := &panicError{recover(), debug.Stack()}
		logBroken(s.log, broken)
		s.abandon(broken)
	}()
	defer s.close()
	s.run()
	handledAll = true
}

// name returns the name of the orchestrator, or "" if it is unknown.
func (s *orchestrationSession) name() string {
	if s.x.start == nil {
		return ""
	}
	return s.x.start.Name
}

// end ends the measurement, if one is running.
func (s *orchestrationSession) end() { s.endMeasurement(s.name()) }

// run runs episodes until the instance ends or has no more messages, or an error occurs.
func (s *orchestrationSession) run() {
	past, messages := s.item.History, s.item.Messages
	s.x.start = history.StartOf(past)
	logResumed(s.log, s.item)
	s.traced = s.d.config.Tracer.Instance(past)
	for results := interruptedSteps(past, s.d.config.Now()); ; {
		cp := s.episode(past, messages, results)
		if cp == nil || s.x.ended || s.x.start == nil || s.x.code == nil {
			return
		}
		switch {
		case s.x.live != nil:
			past = nil // the execution in memory has processed the history
		case cp.ContinuedAsNew:
			past = cp.NewEvents // of a generation that has not run
		}
		if messages, results = s.awaitNews(); len(messages)+len(results) == 0 {
			return
		}
		s.measure(metering.Orchestration)
	}
}

// episode runs an episode and commits its checkpoint, or defers it. It returns nil if the session
// must end.
func (s *orchestrationSession) episode(past []history.Event, messages []provider.TaskMessage, results []history.Event) *provider.Checkpoint {
	e := &deferredCheckpoint{messages: messages, isFirst: s.x.start == nil}
	if s.x.start != nil {
		e.execution = s.x.start.Instance
	}
	s.d.config.Stalls.resume(startOf(s.x.start, messages), messages)
	cp, dropped, err := s.decide(past, messages, results)
	if s.refuse(err, messages) {
		return nil
	}
	e.cp, e.dropped, e.events = cp, dropped, cp.NewEvents
	s.prepareSteps(cp)
	if s.deferred == nil && s.x.isDeferrable(cp) {
		s.traced.Stamp(cp, s.d.config.Now())
		s.deferred, e.until = e, s.d.config.Now().Add(deferLimit)
	} else if !s.commit(cp, e, len(results) > 0) {
		return nil
	}
	if s.steps != nil {
		if !s.isSuspended() {
			s.steps.resume()
		}
		s.steps.beginRecorded(s.holds)
		s.steps.add(s.x, s.traced)
	}
	return cp
}

// prepareSteps updates the session's steps after an episode, before its checkpoint is stored. It ends the
// steps of an execution that has ended, wakes sleeping polls and pauses the steps of a suspended instance. It
// also sets cp.StepsRunning.
func (s *orchestrationSession) prepareSteps(cp *provider.Checkpoint) {
	if s.steps != nil && (s.x.ended || cp.ContinuedAsNew) {
		s.steps.end(errExecutionOver)
		s.steps = nil
	}
	if len(s.x.newSteps)+len(s.x.sleeping) > 0 && s.steps == nil {
		s.steps = newSteps(s.d, s.live.work, cp.Instance, s.ids, s.mayStart)
	}
	if s.steps != nil {
		s.x.newSteps = append(s.steps.sleep(s.x.sleeping, &s.x.intake), s.x.newSteps...)
		if s.isSuspended() {
			s.steps.pause()
		}
	}
	cp.StepsRunning = s.expectsResults()
}

// isSuspended reports whether the instance is suspended after the last episode, or its code is missing.
func (s *orchestrationSession) isSuspended() bool { return s.x.live == nil || s.x.live.IsSuspended() }

// expectsResults reports whether the current execution has steps without recorded results. This session must
// wait for the results, or a later session must run the steps again. While the instance is suspended, only
// running and ended steps count, because the resumption redelivers the instance. Sleeping polls do not count,
// because a message wakes them.
func (s *orchestrationSession) expectsResults() bool {
	if s.steps == nil || s.x.ended || s.x.live == nil || !s.x.live.HasOpenSteps() {
		return false
	}
	return s.x.live.OpenSteps() > len(s.steps.sleeping) && (!s.x.live.IsSuspended() || s.steps.areRunning())
}

// mayStart reports whether a step of the session may start.
func (s *orchestrationSession) mayStart() bool {
	return s.live.fetch.Err() == nil && s.holds()
}

// holds reports whether the session holds its instance. Without a [provider.Holder] it assumes so.
func (s *orchestrationSession) holds() bool {
	holder, ok := s.item.Session.(provider.Holder)
	return !ok || holder.Holds()
}

// commit stores the checkpoint of an episode together with the deferred checkpoint, if there is one. If it
// fails, it abandons the instance and returns false.
func (s *orchestrationSession) commit(cp *provider.Checkpoint, e *deferredCheckpoint, hasResults bool) bool {
	whole := s.withDeferred(cp, e)
	s.traced.Stamp(whole, s.d.config.Now())
	parts := []*provider.Checkpoint{whole}
	if hasResults && messagesIn(whole) > 0 && !s.isExact {
		parts = s.divide(whole, e.execution)
	}
	for _, part := range parts {
		if err := s.item.Session.Commit(s.live.io, part); err != nil {
			s.abandon(s.commitFailed(err))
			return false
		}
	}
	s.d.committing.succeeded()
	s.d.config.Blocked.remove(whole.Instance.InstanceID, "orchestrator")
	if hasResults {
		s.d.config.Blocked.remove(whole.Instance.InstanceID, "step")
	}
	if len(whole.NewEvents) > 0 {
		s.d.resetCrashes(s.work)
	}
	if hasResumption(e.messages) {
		s.d.resumeSetAside(whole.Instance.InstanceID)
	}
	s.traced.Committed(whole, s.d.config.Now())
	s.logCommitted(whole, e)
	return true
}

// logCommitted logs and reports a committed episode.
func (s *orchestrationSession) logCommitted(cp *provider.Checkpoint, e *deferredCheckpoint) {
	if e.isFirst && s.x.code != nil {
		s.log.Debug("orchestration started", "event", "FunctionStarting")
	}
	logTaken(s.log, e.messages, e.dropped)
	if cp.ContinuedAsNew {
		s.log.Debug("orchestration continued as new", "event", "FunctionCompleted", "continuedAsNew", true)
		s.logFor(cp.Instance, s.x.start)
	}
	logScheduled(s.ids, s.name(), cp)
	if logCheckpoint(s.log, cp, s.x.ended) {
		s.outcome = metering.Failed
	}
	if listen := s.d.config.Lifecycle; listen != nil && s.x.start != nil {
		notify(listen, s.log, s.x.start.Name, cp, e.isFirst, s.x.ended)
	}
	if s.x.ended {
		s.d.config.Stalls.remove(cp.Instance.InstanceID)
	}
}

// withDeferred returns the checkpoint of an episode with the deferred events before it, and adds
// the deferred messages to e.
func (s *orchestrationSession) withDeferred(cp *provider.Checkpoint, e *deferredCheckpoint) *provider.Checkpoint {
	before := s.deferred
	if s.deferred = nil; before == nil {
		return cp
	}
	e.messages, e.dropped = slices.Concat(before.messages, e.messages), slices.Concat(before.dropped, e.dropped)
	e.isFirst = e.isFirst || before.isFirst
	s.x.opening = slices.Concat(before.events, s.x.opening)
	if cp.ContinuedAsNew {
		return cp
	}
	whole := *cp
	whole.NewEvents = slices.Concat(before.events, cp.NewEvents)
	return &whole
}

// divide splits the checkpoint of an episode that received results of steps and sends messages. The results
// must be stored before the messages that depend on them are sent. The first part contains the opening events
// and ends like an episode with unrecorded steps. After a crash between the parts, the wake-up of the steps
// makes a worker repeat the decisions.
func (s *orchestrationSession) divide(cp *provider.Checkpoint, execution history.OrchestrationInstance) []*provider.Checkpoint {
	first, rest := &provider.Checkpoint{
		Instance: execution, NewEvents: s.x.opening, StepsRunning: true, CustomStatus: cp.CustomStatus, KeepCustomStatus: cp.KeepCustomStatus,
	}, *cp
	if !cp.ContinuedAsNew {
		first.NewEvents = s.x.openingIn(cp.NewEvents)
		rest.NewEvents = cp.NewEvents[len(first.NewEvents):]
	}
	open := &history.OrchestratorCompleted{Header: history.NewHeader(s.d.config.Now())}
	open.IsPlayed = true
	first.NewEvents = append(slices.Clip(first.NewEvents), open)
	return []*provider.Checkpoint{first, &rest}
}

// awaitNews waits for messages and for the results of steps. It returns none if the session must
// end.
func (s *orchestrationSession) awaitNews() (messages []provider.TaskMessage, results []history.Event) {
	s.end()
	switch {
	case s.expectsResults():
	case s.d.config.ExtendedSessions:
		if messages, err := s.next(&s.d.orchestrations.idle, s.x.size()); err != nil {
			s.abandon(err)
		} else {
			return messages, nil
		}
		return nil, nil
	default:
		return nil, nil
	}
	s.releasePayload()
	if messages, results = (&stepWait{orchestrationSession: s}).await(); len(messages)+len(results) == 0 {
		return nil, nil
	}
	if !s.hasSlot && !s.d.orchestrations.enter(s.live.io) {
		s.abandon(errStopping)
		return nil, nil
	}
	s.hasSlot = true
	s.payload = s.x.size() + payloadOfMessages(messages)
	for _, e := range results {
		s.payload += payloadOf(e)
	}
	s.d.payloads.add(s.payload)
	return messages, results
}

// decide is [execution.runMessages] in a turn. It logs the discarded messages.
func (s *orchestrationSession) decide(past []history.Event, messages []provider.TaskMessage, results []history.Event) (*provider.Checkpoint, []droppedMessage, error) {
	x := s.x
	var cp *provider.Checkpoint
	var dropped []droppedMessage
	var err error
	broken := s.runTurn(func() { cp, dropped, err = x.runMessages(s.d.functions, s.item.Instance, past, messages, results) })
	if broken != nil {
		return nil, nil, broken
	}
	if x.live != nil && x.live.Divergence() != nil {
		s.d.config.Meter.NonDeterministic(s.name())
	}
	for _, m := range dropped {
		s.log.Info("discarded a message", "eventType", m.message.Event.Type(), "reason", m.reason)
	}
	return cp, dropped, err
}

// refuse abandons the instance if err is not nil. It reports whether it did.
func (s *orchestrationSession) refuse(err error, messages []provider.TaskMessage) bool {
	if err == nil {
		return false
	}
	if stall, ok := errors.AsType[*stall](err); ok {
		s.abandonStalled(stall, messages)
		return true
	}
	if broken, ok := errors.AsType[*panicError](err); ok {
		logBroken(s.log, broken)
	} else if unknown, ok := errors.AsType[*unknownFunctionError](err); ok {
		log := s.log
		if difference, ok := errors.AsType[*replay.NonDeterminismError](err); ok {
			log = log.With("error", difference)
		}
		log.Log(context.Background(), s.d.recordBlocked(s.item.Instance.InstanceID, unknown),
			"orchestration is held back: "+unknown.reason(), "version", unknown.version)
	} else {
		s.log.Error("cannot run the episode", "error", err)
	}
	s.abandon(err)
	return true
}

// abandonStalled abandons an instance whose code was abandoned. The instance is delivered again
// soon, and then runs without code.
func (s *orchestrationSession) abandonStalled(it *stall, messages []provider.TaskMessage) {
	logBroken(s.log, it)
	if it.isStopping {
		s.abandon(errStopping)
		return
	}
	it.resumed = resumedAt(messages)
	if s.d.config.Stalls.add(it) {
		s.log.Error("orchestrator disabled: it did not yield in several instances; suspend and resume one of them to enable it again",
			"version", it.start.Version, "instances", maxStalls)
	}
	s.endSteps(errUncommitted)
	s.abandon(&provider.RetryAtError{Cause: it, At: s.d.config.Now().Add(time.Second)})
}

// abandon ends the session's steps and then calls [session.abandon].
func (s *orchestrationSession) abandon(cause error) {
	s.outcome = metering.Abandoned
	s.endSteps(errUncommitted)
	s.session.abandon(cause)
}

// endSteps ends the steps, and waits for at most stepGrace until their functions return.
func (s *orchestrationSession) endSteps(cause error) {
	if s.steps != nil {
		s.steps.end(cause)
		s.steps.awaitReturn(s.live.io)
		s.steps = nil
	}
}

// release ends the session's steps and then calls [session.release].
func (s *orchestrationSession) release() {
	s.endSteps(errHandover)
	s.session.release()
}

// releaseSlot releases the slot, if the session has one.
func (s *orchestrationSession) releaseSlot() {
	if s.hasSlot {
		s.d.orchestrations.release()
		s.hasSlot = false
	}
}

// runTurn runs f, which runs code of s.x, on another goroutine. The error is a *panicError, or
// a *stall if the turn was abandoned. After a stall, s.x is a new execution without state, and
// the results of f must not be used.
func (s *orchestrationSession) runTurn(f func()) error {
	t := &turn{log: s.log, label: s.label, over: make(chan error, 1)}
	x := s.x
	x.turn = t
	go s.onTurn(t, x, f)
	var err error
	select {
	case err = <-t.over:
	case <-s.live.work.Done():
		s.d.watchdog.abandonSoon(t)
		err = <-t.over
	}
	if stall, ok := err.(*stall); ok { //nolint:errorlint // it is not wrapped
		s.x = &execution{start: stall.start}
	}
	return err
}

// onTurn is the body of the turn's goroutine.
func (s *orchestrationSession) onTurn(t *turn, x *execution, f func()) {
	growStack()
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

// limit runs f, which runs code of x, on the turn's goroutine under the watchdog. It ends the
// goroutine if the turn was abandoned.
func (s *orchestrationSession) limit(x *execution, f, late func()) error {
	s.d.watchdog.watch(x.turn, x.start, x.progress)
	f()
	if !s.d.watchdog.unwatch(x.turn) {
		late()
		runtime.Goexit()
	}
	return nil
}

// close unwinds the orchestrator if it is in memory.
func (s *orchestrationSession) close() {
	if s.x.live == nil || s.x.ended {
		s.x.close() // no code is left to unwind
		return
	}
	x := s.x
	err := s.runTurn(func() { _ = x.limit(x, x.close, func() {}) })
	if err != nil {
		logBroken(s.log, err)
	}
}
