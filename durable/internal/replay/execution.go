package replay

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// Code is the function of an orchestrator. It runs as a coroutine of x and may block only
// through x.
type Code func(x *Execution, input *string) (output *string, err error)

// An Execution is one execution of an instance in memory, with the coroutines of its
// orchestrator. It is not safe for concurrent use.
type Execution struct {
	instance history.OrchestrationInstance
	code     Code
	group    coro.Group
	traced   bool     // see [Execution.TraceWaits]
	observer Observer // may be nil

	started     *history.ExecutionStarted // nil before the orchestrator starts
	now         time.Time
	status      *string
	finished    int // number of completed futures; gives each its order
	historySize historySize
	readsTime   bool // see [Outcome]

	heldBack []history.Event // received while suspended
	complete *Complete       // how the execution ends; nil while it runs
	// lateEvents and pendingSuspend arrived after the orchestrator had ended.
	lateEvents     []*history.EventRaised
	pendingSuspend *history.ExecutionSuspended
	failure        *history.FailureDetails // the argument of Fail

	replaying      bool
	suspended      bool
	continuedAsNew bool // ContinueAsNew was called
	discardsEvents bool // continue-as-new drops unread events
	// deferredEnd is set if the history contains pendingSuspend: the generation was committed,
	// suspended, before it ran. Its end is not reported until it is resumed.
	deferredEnd bool
	over        bool // the end was reported, or is in the history
	diverged    bool // the code is missing or does not match the history

	// The parts of an execution. Their exported methods are part of its API.
	actions
	entities
	events
	guids
	open
	patches
	recorded
	timers
	usage
}

// New returns an Execution that has seen no events. If code is nil, the execution makes no
// decisions and accepts any history. It can still be suspended, terminated and failed.
func New(instance history.OrchestrationInstance, code Code) *Execution {
	x := &Execution{instance: instance, code: code, diverged: code == nil}
	x.actions.x, x.entities.x, x.events.x, x.guids.x = x, x, x, x
	x.open.x, x.patches.x, x.recorded.x, x.timers.x, x.usage.x = x, x, x, x, x
	return x
}

// TraceWaits enables [Future.WaiterStacks], [Execution.ParkedStacks] and
// [Execution.DivergenceStacks]. Call it before the first episode.
func (x *Execution) TraceWaits() {
	x.traced = true
	x.group.Trace()
}

// ParkedStacks returns the stacks of the waiting coroutines in the format of [runtime.Callers].
// It requires [Execution.TraceWaits].
func (x *Execution) ParkedStacks() [][]uintptr { return x.group.ParkedStacks() }

// Episode replays past, the part of the history that x has not seen. It then runs an episode
// with the events in fresh, which start with *history.OrchestratorStarted. Past is empty if x
// ran all earlier episodes itself.
//
// The caller must record the outcome. If that fails, it must close x and replay the history
// with a new Execution.
func (x *Execution) Episode(past, fresh []history.Event) Outcome {
	if x.started == nil {
		x.guids.recognize(past)
	}
	x.replaying = true
	for _, e := range past {
		x.handle(e)
	}
	x.endOfPast()
	x.replaying, x.readsTime = false, false
	for _, e := range fresh {
		x.handle(e)
	}
	x.recorded.closed = false
	return x.outcome()
}

// DropEpisode removes the last episode from [Execution.HistoryLength]. It received and decided nothing,
// and the caller does not record it.
func (x *Execution) DropEpisode() { x.historySize.episodes-- }

// outcome collects the result of the episode.
func (x *Execution) outcome() Outcome {
	x.failOnMisuse()
	if x.failure != nil && x.complete == nil && !x.over {
		x.finish(history.Failed, x.failure)
	}
	o := Outcome{CustomStatus: x.status, Aliases: x.entities.aliases, Patched: x.patches.takeMarkers(), ReadsTime: x.readsTime}
	x.entities.aliases, x.readsTime = nil, false
	switch {
	case x.over, x.deferredEnd:
	case x.complete != nil:
		x.over = true
		if x.diverged {
			x.releaseRecorded()
		}
		if x.complete.Status == history.ContinuedAsNew {
			if !x.discardsEvents {
				x.complete.CarryOver = append(x.events.unread(), x.lateEvents...)
			}
			x.complete.Suspended = x.pendingSuspend
		}
		o.Actions, _ = x.actions.take()
	case x.suspended:
		// The instance starts nothing new until it is resumed
		// (DurableTask.Core/TaskOrchestrationContext.cs, HandleExecutionSuspendedEvent). The
		// actions stay pending, also in every replay.
	default:
		o.Actions, o.Steps = x.actions.take()
		clear(x.entities.pending)
	}
	return o
}

// Fail makes an Execution without code fail in its next episode, unless that episode terminates
// it.
func (x *Execution) Fail(failure *history.FailureDetails) { x.failure = failure }

// Close unwinds the orchestrator if it has not returned. Every Execution must be closed.
func (x *Execution) Close() { x.group.Close() }

// Instance returns the instance ID and the execution ID.
func (x *Execution) Instance() history.OrchestrationInstance { return x.instance }

// StartEvent returns the event that started the execution. In the orchestrator's code it is
// never nil.
func (x *Execution) StartEvent() *history.ExecutionStarted { return x.started }

// version returns the version of the instance.
func (x *Execution) version() string {
	if x.started == nil {
		return ""
	}
	return x.started.Version
}

// Now returns the time of the current episode.
func (x *Execution) Now() time.Time { return x.now }

// ReadTime returns the time of the current episode to the orchestrator's code; see [Outcome].
func (x *Execution) ReadTime() time.Time {
	x.readsTime = true
	return x.now
}

// IsReplaying reports whether the current event is from the history.
func (x *Execution) IsReplaying() bool { return x.replaying }

// IsUnwinding reports whether the orchestrator has ended or is being unloaded. Only its
// deferred calls run then.
func (x *Execution) IsUnwinding() bool { return x.group.IsClosing() }

// HistoryLength returns the number of events in the history, including those that the current
// episode has received or caused so far. It is the same in every replay.
func (x *Execution) HistoryLength() int {
	return x.historySize.arrived + 2*x.historySize.episodes - 1 + x.actions.next + x.patches.count
}

// HistorySize returns the approximate size of the history in bytes: the received texts, plus
// 128 bytes per event. It is the same in every replay.
func (x *Execution) HistorySize() int {
	return x.historySize.size + eventSize*x.HistoryLength()
}

// SetCustomStatus sets the instance's custom status to JSON text.
func (x *Execution) SetCustomStatus(status *string) {
	x.check("SetCustomStatus")
	x.status = status
}

// start starts the orchestrator.
func (x *Execution) start(e *history.ExecutionStarted) {
	if x.started != nil {
		return // a duplicate start
	}
	x.started = e
	if x.code == nil {
		return
	}
	x.group.Go(func() { x.returned(x.code(x, e.Input)) })
}

// run runs the woken coroutines until all wait.
func (x *Execution) run() {
	x.ReportProgress()
	if crash := x.group.Run(); crash != nil {
		x.finish(history.Failed, x.failureOfCrash(crash))
	}
	if x.complete != nil {
		x.group.Close()
	}
}

func (x *Execution) failureOfCrash(c *coro.Crash) *history.FailureDetails {
	if c.Goexit {
		return FailureOfPanic(x.misuse(
			"durable: the orchestrator called runtime.Goexit, perhaps through testing.T.FailNow; it must return or panic",
		), c.Stack)
	}
	return FailureOfPanic(c.Value, c.Stack)
}

// Collect returns a Collector of fs. The caller must call its Stop method.
func (x *Execution) Collect(fs []*Future) *Collector {
	x.check("AsCompleted")
	x.checkOwn("AsCompleted", fs)
	c := &Collector{x: x, futures: fs}
	for i, f := range fs {
		c.watch(i, f)
	}
	slices.SortStableFunc(c.done, func(a, b int) int { return cmp.Compare(fs[a].order, fs[b].order) })
	return c
}

// ContinueAsNew returns an error. The orchestrator must return it, or wrap it, to continue as a
// new execution with the given input.
func (x *Execution) ContinueAsNew(input *string) error {
	return x.ContinueAsNewWith(input, Continuation{})
}

// ContinueAsNewWith is [Execution.ContinueAsNew] with options.
func (x *Execution) ContinueAsNewWith(input *string, how Continuation) error {
	x.check("ContinueAsNew")
	x.continuedAsNew = true
	return &continueAsNew{input, how}
}

// returned ends the execution with the result of the orchestrator. It runs in the
// orchestrator's coroutine, because it calls methods of the user's error.
func (x *Execution) returned(output *string, err error) {
	x.group.Stop() // no branch runs again
	var next *continueAsNew
	switch {
	case errors.As(err, &next):
		end := x.finish(history.ContinuedAsNew, nil)
		end.Result, end.NewVersion = next.input, next.how.NewVersion
		x.discardsEvents = next.how.DiscardEvents
	case x.continuedAsNew:
		x.finish(history.Failed, FailureOf(x.misuse(
			"the orchestrator called ContinueAsNew and returned something else; end it with: return durable.ContinueAsNew(ctx, ...)",
		)))
	case err != nil:
		failure := FailureOf(err)
		x.finish(history.Failed, failure).Result = new(reasonOf(err, failure))
	default:
		x.finish(history.Completed, nil).Result = output
	}
}

// finish sets how the execution ends. It replaces an end that was decided earlier.
func (x *Execution) finish(status history.RuntimeStatus, failure *history.FailureDetails) *Complete {
	c := &Complete{Status: status, Failure: failure}
	if failure != nil {
		c.Result = new(failure.ErrorMessage)
	}
	if x.complete != nil {
		x.actions.drop(x.complete)
	}
	if !x.diverged {
		x.release(x.entities.section)
	}
	x.complete = c
	x.actions.add(c, &c.ID)
	return c
}

// terminate ends the execution from outside. Earlier decisions are kept, as if they belonged to
// an earlier episode, unless the instance was suspended. The releases of locks are always kept.
//
// If an execution continues as new and is terminated in the same episode, it is terminated: the
// message would not reach its next generation.
func (x *Execution) terminate(e *history.ExecutionTerminated) {
	if x.over || x.complete != nil && x.complete.Status != history.ContinuedAsNew && !x.deferredEnd {
		return
	}
	if x.suspended || x.deferredEnd {
		x.actions.keepReleases()
	}
	x.deferredEnd = false
	x.finish(history.Terminated, nil).Result = e.Reason
	x.group.Close()
}

// handle handles one event, from the history or the new episode.
func (x *Execution) handle(e history.Event) {
	x.historySize.add(e)
	closes := false
	switch e := e.(type) {
	case *history.OrchestratorStarted:
		x.endOfEpisode()
		x.now = history.TruncateToTicks(e.Timestamp) // the precision of a stored history
	case *history.OrchestratorCompleted:
		closes, x.recorded.open = !e.IsPlayed, e.IsPlayed
	case *history.TaskScheduled, *history.TimerCreated,
		*history.SubOrchestrationInstanceCreated, *history.EventSent:
		x.match(e)
	case *history.ExecutionCompleted, *history.ContinueAsNew:
		x.ended()
	case *history.GenericEvent:
		x.rewind(e.EventID)
		x.patches.recordMarker(e)
		x.recordStart(e)
	case *history.ExecutionTerminated:
		x.terminate(e)
	case *history.ExecutionSuspended:
		x.suspend(e)
	case *history.ExecutionResumed:
		x.resume()
	default:
		x.recordEnd(e)
		if x.suspended {
			x.heldBack = append(x.heldBack, e)
		} else {
			x.deliver(e)
		}
	}
	x.recorded.closed = closes
}

// deliver passes an event to the orchestrator and runs it.
func (x *Execution) deliver(e history.Event) {
	if x.complete != nil {
		// Only the next generation can receive the event.
		if e, ok := e.(*history.EventRaised); ok && !x.isAnswer(e) {
			x.lateEvents = append(x.lateEvents, e)
		}
		return
	}
	switch e := e.(type) {
	case *history.ExecutionStarted:
		x.start(e)
	case *history.TaskCompleted:
		x.settle(e.TaskScheduledID, taskKind, e)
	case *history.TaskFailed:
		x.settle(e.TaskScheduledID, taskKind, e)
	case *history.SubOrchestrationInstanceCompleted:
		x.settle(e.TaskScheduledID, childKind, e)
	case *history.SubOrchestrationInstanceFailed:
		x.settle(e.TaskScheduledID, childKind, e)
	case *history.TimerFired:
		x.fire(e)
	case *history.EventRaised:
		if !x.answer(e) {
			x.raise(e)
		}
	default:
		return // HistoryState and ExecutionRewound do not concern the orchestrator
	}
	x.run()
}

// suspend stops the delivery of events until the instance is resumed
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
func (x *Execution) suspend(e *history.ExecutionSuspended) {
	if x.complete != nil {
		x.pendingSuspend, x.deferredEnd = e, x.deferredEnd || x.replaying
		return
	}
	x.suspended = true
}

// resume delivers the events that arrived while the instance was suspended, in order.
func (x *Execution) resume() {
	x.pendingSuspend, x.deferredEnd = nil, false
	if !x.suspended {
		return
	}
	x.suspended = false
	held := x.heldBack
	x.heldBack = nil
	for _, e := range held {
		x.deliver(e)
	}
}

// AwaitAny waits until one of fs is complete, and returns the index of the first to complete.
// The others have lost a race: external events among them receive no event until they are
// awaited again.
func (x *Execution) AwaitAny(fs []*Future) int {
	x.checkOwn("AwaitAny", fs)
	winner := earliest(fs)
	if winner < 0 {
		x.check("AwaitAny")
		if len(fs) == 0 {
			panic(x.misuse("durable: AwaitAny was called without tasks, which would wait forever"))
		}
		for i, f := range fs {
			if x.events.listen(f); f.IsComplete() {
				winner = i
				break
			}
		}
	}
	if winner < 0 {
		for _, f := range fs {
			f.subscribe()
		}
		x.group.Park()
		winner = earliest(fs)
	}
	x.events.markRead(fs[winner])
	x.events.withdraw(fs)
	return winner
}

// Branch runs body as another coroutine, and completes f when body returns.
func (x *Execution) Branch(f *Future, body func()) {
	x.check("Go")
	f.x, f.kind = x, branchKind
	x.group.Go(func() {
		body()
		f.complete(nil)
	})
}

// MarkComplete makes f a complete future without an event.
func (x *Execution) MarkComplete(f *Future) {
	f.x, f.kind = x, branchKind
	f.complete(nil)
}

// ended handles the end of the execution in the history.
func (x *Execution) ended() {
	x.over = true
	x.group.Close()
}

// IsSuspended reports whether the instance holds back events until it is resumed.
func (x *Execution) IsSuspended() bool { return x.suspended || x.deferredEnd }

// Ended returns how the orchestrator ended, or nil if it has not ended.
func (x *Execution) Ended() *Complete { return x.complete }

// Refit searches for an Execution that fits a history from which x diverged. It returns the
// Execution and its outcome, or nil. X must have seen only past and fresh.
//
// The answers of [Execution.Patched] may be missing: DurableTask ignores a GenericEvent in
// replay and writes no markers (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
// If a .NET worker ran the execution past a question, only later decisions reveal the answer.
// Refit therefore answers yes from one of the unmarked questions on. It tries the last question
// first and returns the first Execution that fits. The caller must close both executions.
func (x *Execution) Refit(past, fresh []history.Event) (*Execution, Outcome) {
	if x.Divergence() == nil || x.code == nil {
		return nil, Outcome{}
	}
	for _, id := range slices.Backward(x.patches.unmarked) {
		y := New(x.instance, x.code)
		y.Observe(x.observer)
		if x.traced {
			y.TraceWaits()
		}
		y.patches.newFrom = id
		if o := y.Episode(past, fresh); y.Divergence() == nil {
			return y, o
		}
		y.Close()
	}
	return nil, Outcome{}
}

// Observe sets the observer. Call it before the first episode, or at the start of the code.
func (x *Execution) Observe(o Observer) { x.observer = o }

// ReportProgress reports a step to the observer, if there is one.
func (x *Execution) ReportProgress() {
	if x.observer != nil {
		x.observer.Progressed()
	}
}
