package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// fetchOrchestrations hands out instances until the worker stops, at most
// MaxConcurrentOrchestrators at once.
func (d *Dispatcher) fetchOrchestrations(live lifetimes) {
	for {
		w, err := fetch(live.fetch, &d.orchestrations, d.provider.NextOrchestration)
		if err != nil {
			if live.fetch.Err() != nil {
				return
			}
			pause(live.fetch, d.fetchingInstances.failed(err))
			continue
		}
		d.fetchingInstances.worked()
		if history.IsEntity(w.Instance.InstanceID) {
			d.handle("entity "+w.Instance.InstanceID, crashes.Work("entity", entityName(w), "", 0, w.Instance.InstanceID),
				func(it *item) { d.runEntity(live, w, it, d.orchestrations.leave) })
			continue
		}
		d.handle("orchestration "+w.Instance.InstanceID, crashes.Work("orchestrator", orchestratorName(w), "", 0, w.Instance.InstanceID), func(it *item) {
			defer d.orchestrations.leave()
			d.runInstance(live, w, it)
		})
	}
}

// orchestratorName returns the name of the orchestrator of the instance that was handed
// out, empty if that has not come.
func orchestratorName(w *provider.OrchestrationWorkItem) string {
	start := history.StartOf(w.History)
	for i := 0; start == nil && i < len(w.Messages); i++ {
		start, _ = w.Messages[i].Event.(*history.ExecutionStarted)
	}
	if start == nil {
		return ""
	}
	return start.Name
}

// runInstance runs an instance's episode, and those that follow while its
// session is extended.
func (d *Dispatcher) runInstance(live lifetimes, w *provider.OrchestrationWorkItem, it *item) {
	s := &session{d: d, live: live, item: w, label: it.label, work: it.work}
	s.logFor(w.Instance)
	s.x = &execution{now: d.config.Now, watch: s.watch, storeInputs: d.config.StoreInputs}
	s.x.versions = versions{refuses: d.config.CheckVersion, fails: d.config.FailMismatch}
	s.x.unknown = s.d.config.unknown()
	s.x.crashed = func() bool { return d.config.Crashes.Holds(it.work) }
	s.x.stopping = func() bool { return live.fetch.Err() != nil }

	// What goes wrong with one instance ends here: the deferred calls also see a
	// panic of ours, and an orchestrator that ended the goroutine.
	s.outcome = metering.Completed
	end := d.config.Meter.Begin(metering.Orchestration, d.config.Now)
	defer func() { end(s.name(), s.outcome) }()
	handledAll := false
	defer s.release()
	defer func() {
		if handledAll {
			return
		}
		cause := errors.New("the goroutine of the episode was ended by runtime.Goexit")
		if v := recover(); v != nil {
			cause = fmt.Errorf("panic while handling the instance: %v", v)
			s.log.Error("panic while handling the instance", "panic", v, "stack", string(debug.Stack()))
		}
		s.abandon(cause)
	}()
	defer s.x.close()
	s.run()
	handledAll = true
}

// A session is the time from when an instance was handed out to when it is
// released.
type session struct {
	d     *Dispatcher
	live  lifetimes
	item  *provider.OrchestrationWorkItem
	label string
	work  string       // by which crashes are counted
	log   *slog.Logger // with the current execution's IDs
	x     *execution

	hasRoom bool // of an entity: it takes one of the places for those
	outcome metering.Outcome
}

// name returns the name of the orchestrator, empty if it is not known.
func (s *session) name() string {
	if s.x.start == nil {
		return ""
	}
	return s.x.start.Name
}

func (s *session) logFor(i history.OrchestrationInstance) {
	s.log = s.d.log.With("instanceId", i.InstanceID, "executionId", i.ExecutionID)
}

// run runs episodes until the instance ends, has nothing more to do for now, or
// something fails.
func (s *session) run() {
	past, messages := s.item.History, s.item.Messages
	s.x.start = history.StartOf(past)
	s.tellTakenUp(past)
	traced := s.d.config.Tracer.Instance(past)
	extended := false
	defer func() {
		if extended {
			<-s.d.extended
		}
	}()
	for {
		began := s.x.start == nil
		cp, dropped, err := s.decide(past, messages)
		if s.refuse(err) {
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
		if s.x.ended || s.x.start == nil || s.x.code == nil || !s.d.config.ExtendedSessions {
			return
		}
		switch {
		case s.x.live != nil:
			past = nil // the execution in memory has seen it all
		case cp.ContinuedAsNew:
			past = cp.NewEvents // of a generation that is yet to run
		}
		// As DurableTask, take part in extended sessions only while there is
		// room (DurableTask.Core/TaskOrchestrationDispatcher.cs,
		// OnProcessWorkItemSessionAsync).
		if !extended {
			select {
			case s.d.extended <- struct{}{}:
				extended = true
			default:
				return
			}
		}
		messages, err = s.item.Session.Next(s.live.fetch, s.d.config.ExtendedSessionIdle)
		if err != nil && s.live.fetch.Err() == nil {
			s.log.Warn("cannot wait for the instance's next messages", "error", err)
		}
		if err != nil || len(messages) == 0 {
			return
		}
	}
}

// decide runs the episode that takes messages, and returns which of them nobody
// wants, too. The checkpoint is empty if nobody wants any.
func (s *session) decide(past []history.Event, messages []provider.TaskMessage) (*provider.Checkpoint, []droppedMessage, error) {
	cp, dropped, err := s.x.take(s.d.functions, s.item.Instance, past, messages)
	for _, m := range dropped {
		s.log.Info("dropped a message", "eventType", m.message.Event.Type(), "reason", m.reason)
	}
	return cp, dropped, err
}

// refuse abandons the instance if err is not nil, and reports whether it did.
func (s *session) refuse(err error) bool {
	if err == nil {
		return false
	}
	if unknown, ok := errors.AsType[*unknownFunctionError](err); ok {
		s.log.Log(context.Background(), s.d.waits(s.item.Instance.InstanceID, unknown),
			"orchestration is held back: "+unknown.why(), "name", unknown.name, "version", unknown.version)
	} else if mismatch, ok := errors.AsType[*mismatch](err); ok {
		s.log.Warn("orchestration is held back: this worker does not take its version", "error", mismatch.cause)
	} else {
		s.log.Error("cannot run the episode", "error", err)
	}
	s.abandon(err)
	return true
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

// watch has the watchdog look at the orchestrator that start began.
func (s *session) watch(start *history.ExecutionStarted) (yielded func()) {
	return s.d.watchdog.watch(s.log, start.Name, s.label)
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

// failureAttrs returns what the log tells of a failure, nothing if there is
// none.
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
