package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

// A session handles an instance from the delivery of its work item to its release.
type session struct {
	d     *Dispatcher
	live  lifetimes
	item  *provider.OrchestrationWorkItem
	label string
	work  string       // the key of its crash count
	log   *slog.Logger // with the IDs of the current execution and the name of its function
	ids   *slog.Logger // with the IDs of the current execution
	x     *execution

	steps    *steps              // of the current execution; nil if it has decided none
	deferred *deferredCheckpoint // nil if all episodes are committed
	isExact  bool                // see [provider.ExactlyOnce]

	hasSlot bool // it holds a slot for entities or orchestrations
	payload int  // admitted bytes
	outcome metering.Outcome
	metered func(name string, o metering.Outcome) // ends the current measurement; may be nil
	traced  *tracing.Instance
}

// name returns the name of the orchestrator or entity, or "" if it is unknown.
func (s *session) name() string {
	if s.x == nil {
		return entityName(s.item)
	}
	if s.x.start == nil {
		return ""
	}
	return s.x.start.Name
}

// logFor sets the logs for an execution with the given start. The start of an entity, or of an unknown
// instance, is nil.
func (s *session) logFor(i history.OrchestrationInstance, start *history.ExecutionStarted) {
	name, traced := entityName(s.item), (*history.TraceContext)(nil)
	if start != nil {
		name, traced = start.Name, start.ParentTraceContext
	}
	s.ids = instanceLog(s.d.log, i, traced)
	if s.log = s.ids; name != "" {
		s.log = s.ids.With("name", name)
	}
}

// begin starts the measurement of an episode or a batch.
func (s *session) begin() {
	kind := metering.Orchestration
	if s.x == nil {
		kind = metering.Entity
	}
	s.outcome, s.metered = metering.Completed, s.d.config.Meter.Begin(kind, s.d.config.Now)
}

// end ends the measurement, if one is running.
func (s *session) end() {
	if s.metered != nil {
		s.metered(s.name(), s.outcome)
		s.metered = nil
	}
}

// next waits for the instance's next messages as an idle session. It returns nil if the session
// must end: the session was idle for too long, its slot or memory is needed, the payload of the
// messages does not fit, or the worker stops. Size is the size of the instance in memory, in
// bytes.
func (s *session) next(among *idle, size int) []provider.TaskMessage {
	s.end()
	s.releasePayload() // idle sessions have a limit of their own
	ctx, leave := among.enter(s.live.fetch, size)
	continues := false
	defer func() { leave(continues) }()
	messages, err := s.item.Session.Next(ctx, s.d.config.ExtendedSessionIdle)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot wait for the instance's next messages", "error", err)
	}
	if err != nil || len(messages) == 0 {
		return nil
	}
	if size += payloadOfMessages(messages); !s.d.payloads.tryEnter(size) {
		s.abandon(&provider.RetryAtError{Cause: errNoRoom, At: s.d.config.Now().Add(time.Second)}) // the redelivered messages wait until they fit
		return nil
	}
	s.payload, continues = size, true
	return messages
}

// releasePayload releases the admitted bytes.
func (s *session) releasePayload() {
	s.d.payloads.release(s.payload)
	s.payload = 0
}

// run runs episodes until the instance ends or has no more messages, or an error occurs.
func (s *session) run() {
	past, messages := s.item.History, s.item.Messages
	s.x.start = history.StartOf(past)
	s.logResumed(past)
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
		s.begin()
	}
}

// episode runs an episode and commits its checkpoint, or defers it. It returns nil if the session
// must end.
func (s *session) episode(past []history.Event, messages []provider.TaskMessage, results []history.Event) *provider.Checkpoint {
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

// prepareSteps tells the steps what the episode has changed, before its checkpoint is stored.
func (s *session) prepareSteps(cp *provider.Checkpoint) {
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
func (s *session) isSuspended() bool { return s.x.live == nil || s.x.live.IsSuspended() }

// expectsResults reports whether the current execution has decided steps whose results are not recorded.
// The session has to wait for them, or another one has to run the steps again. While the instance is
// suspended, only steps that run or have ended count: the resumption delivers the instance again. A
// sleeping poll has a message of its own.
func (s *session) expectsResults() bool {
	if s.steps == nil || s.x.ended || s.x.live == nil || !s.x.live.HasOpenSteps() {
		return false
	}
	return s.x.live.OpenSteps() > len(s.steps.sleeping) && (!s.x.live.IsSuspended() || s.steps.areRunning())
}

// mayStart reports whether a step of the session may start.
func (s *session) mayStart() bool {
	return s.live.fetch.Err() == nil && s.holds()
}

// holds reports whether the session has its instance, as far as it can know.
func (s *session) holds() bool {
	holder, ok := s.item.Session.(provider.Holder)
	return !ok || holder.Holds()
}

// commit stores the checkpoint of an episode, and of a deferred one before it. It returns false if
// that failed.
func (s *session) commit(cp *provider.Checkpoint, e *deferredCheckpoint, hasResults bool) bool {
	whole := s.withDeferred(cp, e)
	s.traced.Stamp(whole, s.d.config.Now())
	parts := []*provider.Checkpoint{whole}
	if hasResults && messagesIn(whole) > 0 && !s.isExact {
		parts = s.divide(whole, e.execution)
	}
	for _, part := range parts {
		if err := s.item.Session.Commit(s.live.io, part); err != nil {
			s.commitFailed(err)
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
func (s *session) logCommitted(cp *provider.Checkpoint, e *deferredCheckpoint) {
	if e.isFirst && s.x.code != nil {
		s.log.Debug("orchestration started", "event", "FunctionStarting")
	}
	s.logTaken(e.messages, e.dropped)
	if cp.ContinuedAsNew {
		s.log.Debug("orchestration continued as new", "event", "FunctionCompleted", "continuedAsNew", true)
		s.logFor(cp.Instance, s.x.start)
	}
	logScheduled(s.ids, s.name(), cp)
	s.report(cp)
	s.notify(cp, e.isFirst)
	if s.x.ended {
		s.d.config.Stalls.remove(cp.Instance.InstanceID)
	}
}

// withDeferred returns the checkpoint of an episode with the deferred events before it, and adds
// the deferred messages to e.
func (s *session) withDeferred(cp *provider.Checkpoint, e *deferredCheckpoint) *provider.Checkpoint {
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

// divide divides the checkpoint of an episode that got results of steps and sends messages: the
// messages must not be sent before the results that they come from are stored. The first part has
// what arrived. After a crash, the steps' wake-up makes a worker repeat the decisions; the first part
// ends like an episode with unrecorded steps.
func (s *session) divide(cp *provider.Checkpoint, execution history.OrchestrationInstance) []*provider.Checkpoint {
	first, rest := &provider.Checkpoint{Instance: execution, NewEvents: s.x.opening, CustomStatus: cp.CustomStatus, StepsRunning: true}, *cp
	if !cp.ContinuedAsNew {
		last := s.x.opening[len(s.x.opening)-1]
		at := 1 + slices.IndexFunc(cp.NewEvents, func(e history.Event) bool { return e == last })
		first.NewEvents, rest.NewEvents = cp.NewEvents[:at], cp.NewEvents[at:]
	}
	open := &history.OrchestratorCompleted{Header: history.NewHeader(s.d.config.Now())}
	open.IsPlayed = true
	first.NewEvents = append(slices.Clip(first.NewEvents), open)
	return []*provider.Checkpoint{first, &rest}
}

// awaitNews waits for messages and for the results of steps. It returns none if the session must
// end.
func (s *session) awaitNews() (messages []provider.TaskMessage, results []history.Event) {
	switch {
	case s.expectsResults():
	case s.d.config.ExtendedSessions:
		return s.next(&s.d.orchestrations.idle, s.x.size()), nil
	default:
		return nil, nil
	}
	s.end()
	s.releasePayload()
	if messages, results = s.awaitSteps(); len(messages)+len(results) == 0 {
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

// awaitSteps is awaitNews while results of steps are expected. The session holds no slot for
// orchestrations meanwhile, and is not among the idle sessions. If it must end, awaitSteps waits until no
// step runs, and returns the instance to the hub.
func (s *session) awaitSteps() (messages []provider.TaskMessage, results []history.Event) {
	var counted chan struct{} // the place of a waiting session; nil if it has none
	stopWaiting := func() {
		if counted != nil {
			<-counted
			counted = nil
		}
	}
	defer stopWaiting()
	for leaves, late := false, false; ; {
		leaves = leaves || s.live.fetch.Err() != nil
		until := s.live.fetch
		if leaves {
			s.steps.leave()
			until = s.live.io
		}
		ctx, cancel := context.WithCancel(until)
		state := s.steps.look(cancel)
		switch {
		case state.records:
			cancel()
			return nil, s.steps.take(true)
		case state.running > 0 && s.live.io.Err() == nil && !late:
			stopWaiting()
			s.releaseSlot()
		case s.mayRest(state, leaves) && s.rest():
			cancel()
			return nil, nil
		case leaves, state.left, state.aside != nil, s.live.io.Err() != nil, s.isSuspended():
			cancel() // the wake-up ends with the next delivery of a suspended instance
			s.giveBack(state.aside)
			return nil, nil
		case !s.tryWait(state, &counted):
			cancel()
			s.giveWay(state)
			return nil, nil
		}
		if leaves || state.left {
			leaves, late = true, s.awaitReturn(ctx)
		} else {
			messages, leaves = s.nextBesideSteps(ctx)
		}
		cancel()
		if s.steps == nil { // a commit has failed, and the instance is returned
			return nil, nil
		}
		if len(messages) > 0 {
			return messages, s.steps.take(false) // the messages may suspend the instance: then no step starts
		}
	}
}

// tryWait counts the session as waiting, for polls if all its steps are waiting polls, or else for a slot,
// and releases its slot for orchestrations. It returns false if too many sessions wait.
func (s *session) tryWait(state stepState, counted *chan struct{}) bool {
	in, before := s.d.waitingForSteps, *counted
	if !state.poll.IsZero() {
		in = s.d.waitingForPolls
	}
	if in == before {
		return true
	}
	select {
	case in <- struct{}{}:
	default:
		return false
	}
	if *counted = in; before != nil {
		<-before
	}
	s.releaseSlot()
	return true
}

// giveWay ends the session because too many sessions wait.
func (s *session) giveWay(state stepState) {
	if !s.mayRest(state, true) || !s.rest() {
		s.abandon(&provider.RetryAtError{Cause: errNoSlot, At: s.d.config.Now().Add(waitingDelay)})
	}
}

// mayRest reports whether the session can end until a poll is due. A poll that is due soon waits in
// memory, unless the session must leave. A step that was interrupted needs the wake-up of running steps.
func (s *session) mayRest(state stepState, leaves bool) bool {
	return !state.poll.IsZero() && s.live.io.Err() == nil && s.x.live.OpenSteps() == state.waiting+len(s.steps.sleeping) &&
		(leaves || !state.left && state.poll.Sub(s.d.config.Now()) > pollStay)
}

// rest makes all waiting polls sleep, and ends the session. The message that it stores replaces the
// wake-up of running steps. It returns false if a poll has become due.
func (s *session) rest() bool {
	due, ids := s.steps.rest()
	if len(ids) == 0 {
		return false
	}
	e := s.deferred
	if s.deferred = nil; e == nil {
		e = &deferredCheckpoint{cp: &provider.Checkpoint{Instance: s.x.start.Instance}}
	}
	cp := *e.cp
	cp.StepsRunning = false
	cp.Messages = append(slices.Clip(cp.Messages), provider.WakePolls(s.x.start.Instance, due, ids))
	s.commit(&cp, e, false)
	return true
}

// nextBesideSteps waits for messages until ctx ends. It stores a deferred checkpoint that has waited
// for too long, or that the provider needs to know that steps run. It reports whether the session must
// leave its instance.
func (s *session) nextBesideSteps(ctx context.Context) (messages []provider.TaskMessage, leaves bool) {
	limit := unlimited
	if s.deferred != nil && len(s.deferred.events) > 0 {
		limit = max(0, s.deferred.until.Sub(s.d.config.Now()))
	}
	messages, err := s.item.Session.Next(ctx, limit)
	switch {
	case len(messages) > 0 || ctx.Err() != nil:
		return messages, false
	case err != nil:
		s.log.Warn("cannot wait for the instance's next messages", "error", err)
		return nil, true
	case s.deferred != nil:
		e := s.deferred
		s.deferred = nil
		return nil, !s.commit(e.cp, e, false)
	}
	return nil, true
}

// awaitReturn waits until ctx ends, because a step has ended. If the worker hands the instance over,
// it ends the contexts of the steps in time. It reports whether the time is over.
func (s *session) awaitReturn(ctx context.Context) (late bool) {
	holder, ok := s.item.Session.(provider.Holder)
	if !ok {
		<-ctx.Done()
		return false
	}
	look := time.NewTicker(handoverReserve / 4)
	defer look.Stop()
	for {
		left, ok := holder.Leaves()
		if ok && left <= handoverReserve {
			s.steps.cancel(errHandover)
		}
		if ok && left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
	}
}

// giveBack returns the instance to the hub, which delivers it again after giveBackDelay. If a step was
// set aside, it is delivered later.
func (s *session) giveBack(aside *unknownFunctionError) {
	if aside != nil {
		s.refuse(aside, nil)
		return
	}
	s.endSteps(errHandover)
	s.abandon(&provider.RetryAtError{Cause: errHandover, At: s.d.config.Now().Add(giveBackDelay)})
}

// decide is [execution.runMessages] in a turn. It logs the discarded messages.
func (s *session) decide(past []history.Event, messages []provider.TaskMessage, results []history.Event) (*provider.Checkpoint, []droppedMessage, error) {
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
func (s *session) refuse(err error, messages []provider.TaskMessage) bool {
	if err == nil {
		return false
	}
	if stall, ok := errors.AsType[*stall](err); ok {
		s.abandonStalled(stall, messages)
		return true
	}
	if broken, ok := errors.AsType[*panicError](err); ok {
		s.logBroken(broken)
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
func (s *session) abandonStalled(it *stall, messages []provider.TaskMessage) {
	s.logBroken(it)
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
		log := s.log.With("running", it.running.Round(time.Millisecond))
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

func (s *session) commitFailed(err error) {
	if errors.Is(err, provider.ErrSessionLost) {
		s.log.Warn("another worker has taken the instance over; the results of this episode are discarded", "event", "FunctionAborted")
	} else {
		s.d.committing.failed(err)
	}
	s.abandon(fmt.Errorf("commit checkpoint: %w", err))
}

// abandon returns the messages in flight to the hub. The session's steps end before.
func (s *session) abandon(cause error) {
	s.outcome = metering.Abandoned
	s.endSteps(errUncommitted)
	ctx, cancel := s.live.abandonContext()
	defer cancel()
	if err := s.item.Session.Abandon(ctx, cause); err != nil {
		s.log.Warn("cannot abandon the instance", "error", err)
	}
}

// endSteps ends the steps, and waits for functions that do not return at once.
func (s *session) endSteps(cause error) {
	if s.steps != nil {
		s.steps.end(cause)
		s.steps.awaitReturn(s.live.io)
		s.steps = nil
	}
}

func (s *session) release() {
	s.endSteps(errHandover)
	ctx, cancel := s.live.abandonContext()
	defer cancel()
	if err := s.item.Session.Release(ctx); err != nil {
		s.log.Warn("cannot release the instance", "error", err)
	}
}

// report logs the result of an episode.
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
		attrs := []slog.Attr{slog.String("event", endEvent(end.Status)), slog.String("status", end.Status.String())}
		s.log.LogAttrs(context.Background(), level, "orchestration ended", append(attrs, failureAttrs(end.Failure)...)...)
	}
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

// runEntity runs batches until the entity has no more messages, or an error occurs.
func (s *session) runEntity() {
	code, err := findEntity(s.d.functions, s.item.Instance.InstanceID)
	if err == nil && s.d.config.Crashes.IsSetAside(s.work) {
		err = &unknownFunctionError{kind: "entity", name: entityName(s.item), crashed: true}
	}
	if unknown, ok := errors.AsType[*unknownFunctionError](err); ok {
		if held := s.d.holdEntity(s.item, unknown); held != nil {
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
			s.commitFailed(err)
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
			s.commitFailed(err)
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
		if past, messages = nil, s.nextForEntity(e.size()); len(messages) == 0 {
			return
		}
	}
}

// nextForEntity waits for the entity's next messages without a slot. It returns nil if the
// session must end.
func (s *session) nextForEntity(size int) []provider.TaskMessage {
	s.releaseSlot()
	messages := s.next(&s.d.idleEntities, size)
	if len(messages) == 0 {
		return nil
	}
	if !acquire(s.live.fetch, s.d.entities) {
		return nil // release makes the provider deliver the messages again
	}
	s.hasSlot = true
	s.begin()
	return messages
}

// releaseSlot releases the slot, if the session has one.
func (s *session) releaseSlot() {
	switch {
	case !s.hasSlot:
		return
	case s.x == nil:
		<-s.d.entities
	default:
		s.d.orchestrations.release()
	}
	s.hasSlot = false
}

// logTaken logs the messages of a committed episode under the event names of .NET
// (WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs). It does not use the history, so a
// replay logs nothing twice, and messages of a generation that continued as new are included.
// Dropped is a subset of messages, in the same order.
func (s *session) logTaken(messages []provider.TaskMessage, dropped []droppedMessage) {
	ctx := context.Background()
	if !s.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for _, m := range messages {
		if len(dropped) > 0 && dropped[0].message.Event == m.Event {
			dropped = dropped[1:]
			continue
		}
		switch e := m.Event.(type) {
		case *history.TimerFired:
			s.log.LogAttrs(ctx, slog.LevelInfo, "timer fired", slog.String("event", "TimerExpired"),
				slog.Int("taskEventId", e.TimerID), fireAt(e.FireAt))
		case *history.EventRaised:
			if isAnswer(e) {
				s.log.LogAttrs(ctx, slog.LevelDebug, "entity response received", slog.String("event", "EntityResponseReceived"),
					slog.String("requestId", e.Name))
				continue
			}
			s.log.LogAttrs(ctx, slog.LevelInfo, "event received", slog.String("event", "ExternalEventRaised"), slog.String("eventName", e.Name))
		case *history.ExecutionSuspended:
			s.log.LogAttrs(ctx, slog.LevelInfo, "orchestration suspended", slog.String("event", "SuspendingOrchestration"), reasonAttr(e.Reason))
		case *history.ExecutionResumed:
			s.log.LogAttrs(ctx, slog.LevelInfo, "orchestration resumed", slog.String("event", "ResumingOrchestration"), reasonAttr(e.Reason))
		}
	}
}

// notify calls Lifecycle for the executions that a committed checkpoint started and ended.
// IsFirst is set if the episode was the first of the execution. An execution that continues as
// new counts as completed (WebJobs.Extensions.DurableTask/OutOfProcMiddleware.cs,
// CallOrchestratorAsync). A panic of Lifecycle is logged and does not end the session.
func (s *session) notify(cp *provider.Checkpoint, isFirst bool) {
	listen := s.d.config.Lifecycle
	if listen == nil || s.x.start == nil {
		return
	}
	send := func(status history.RuntimeStatus, reason string) {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic in the Lifecycle callback", "panic", v)
			}
		}()
		listen(LifecycleEvent{Name: s.x.start.Name, InstanceID: cp.Instance.InstanceID, Status: status, Reason: reason})
	}
	if isFirst {
		send(history.Running, "")
	}
	if cp.ContinuedAsNew {
		send(history.Completed, "")
		send(history.Running, "")
	}
	if !s.x.ended {
		return
	}
	for _, e := range cp.NewEvents {
		if end, ok := e.(*history.ExecutionCompleted); ok {
			send(end.Status, reasonOf(end))
		}
	}
}

// logResumed logs that this process continues an instance of another process, which died,
// stopped or lost its partition. It logs the history's length and the number of open actions. A poll that
// becomes due is no resumption: no event records its calls.
func (s *session) logResumed(past []history.Event) {
	if len(past) == 0 || !slices.ContainsFunc(s.item.Messages, func(m provider.TaskMessage) bool { _, polls := m.WokenPolls(); return polls == nil }) {
		return
	}
	left := past[len(past)-1].Head().Timestamp
	if !left.Before(s.item.OwnedSince) {
		return
	}
	s.log.Info("resuming instance that another process was running",
		"events", len(past), "waitsFor", openActions(past), "leftAt", left.UTC().Format(time.RFC3339Nano))
}

// runTurn runs f, which runs code of s.x, on another goroutine. The error is a *panicError, or
// a *stall if the turn was abandoned. After a stall, s.x is a new execution without state, and
// the results of f must not be used.
func (s *session) runTurn(f func()) error {
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

// limit runs f, which runs code of x, on the turn's goroutine under the watchdog. It ends the
// goroutine if the turn was abandoned.
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
