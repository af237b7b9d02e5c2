// Package replay runs an orchestrator against its history: events in, actions
// out. It knows no clock, no storage and no goroutine of its own.
//
// An [Execution] is shown events one by one. Each may wake coroutines of the
// orchestrator; they run until all of them wait again, before the next event
// is shown (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvents).
// What they decide is numbered in program order. In a history the events that
// record decisions are matched with what the code decides now, and the first
// difference fails the execution with a [NonDeterminismError].
package replay

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// Code is an orchestrator as replay sees it. It runs as a coroutine of x, and
// blocks only through x.
type Code func(x *Execution, input *string) (output *string, err error)

// An Execution is one execution of an instance in memory: its orchestrator,
// parked where it waits.
type Execution struct {
	instance history.OrchestrationInstance
	code     Code
	group    coro.Group
	traced   bool     // see [Execution.TraceWaits]
	observer Observer // nil: none

	started     *history.ExecutionStarted // nil before the orchestrator began
	now         time.Time
	status      *string
	finished    int // futures completed so far: what orders them
	historySize historySize

	held     []history.Event // what came while suspended
	complete *Complete       // how it ended; nil while it has not
	// lateEvents came after the end, and pendingSuspend, too.
	lateEvents     []*history.EventRaised
	pendingSuspend *history.ExecutionSuspended
	failure        *history.FailureDetails // the argument of Fail

	replaying      bool
	suspended      bool
	continuedAsNew bool // ContinueAsNew was called
	discardsEvents bool // it leaves unread events behind
	// deferredEnd says that the history has pendingSuspend: the generation was committed
	// before it ran, and was to wait. How it would end does not count until it is resumed.
	deferredEnd bool
	over        bool // the end was reported, or the history has it
	diverged    bool // the code does not do what the history has, or there is none

	// Its parts. Each has its methods beside it, which are the execution's, too.
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

// New returns an Execution that has seen no event yet. Without code it decides
// nothing of its own: it can be suspended, terminated and failed, and its history
// counts as it is.
func New(instance history.OrchestrationInstance, code Code) *Execution {
	x := &Execution{instance: instance, code: code, diverged: code == nil}
	x.actions.x, x.entities.x, x.events.x, x.guids.x = x, x, x, x
	x.open.x, x.patches.x, x.recorded.x, x.timers.x, x.usage.x = x, x, x, x, x
	return x
}

// TraceWaits keeps where the code waits, for [Future.Waiters]. It is called before the
// first episode.
func (x *Execution) TraceWaits() {
	x.traced = true
	x.group.Trace()
}

// Parked returns the stacks of the coroutines that wait, as [runtime.Callers] does, if
// [Execution.TraceWaits] was called.
func (x *Execution) Parked() [][]uintptr { return x.group.Parked() }

// An Outcome is what an episode decided.
type Outcome struct {
	// Actions are new, in program order. A *Complete is last if it is there.
	Actions []Action
	// CustomStatus is the last value set in this or an earlier episode, JSON
	// text; nil if none was ever set.
	CustomStatus *string
	// Aliases are the answers of entities that came under other names than those
	// that the history's requests wait for.
	Aliases []Alias
	// Patched are the changes of the code that the execution has from this episode on
	// ([patches.Patched]).
	Patched []string
}

// Episode lets the orchestrator see past, the events of its history that it
// has not seen, in replay, and then fresh, the events of a new episode, which
// begin with *history.OrchestratorStarted. It returns what was decided. Past is
// empty if the Execution ran the earlier episodes itself.
//
// What it returns counts as recorded: if that fails, the Execution must be
// closed and its history replayed by another.
func (x *Execution) Episode(past, fresh []history.Event) Outcome {
	if x.started == nil {
		x.guids.recognize(past)
	}
	x.replaying = true
	for _, e := range past {
		x.see(e)
	}
	x.endOfPast()
	x.replaying = false
	for _, e := range fresh {
		x.see(e)
	}
	x.recorded.closed = false
	return x.outcome()
}

// outcome takes what was decided.
func (x *Execution) outcome() Outcome {
	x.failNoted()
	if x.failure != nil && x.complete == nil && !x.over {
		x.finish(history.Failed, x.failure)
	}
	o := Outcome{CustomStatus: x.status, Aliases: x.entities.aliases, Patched: x.patches.take()}
	x.entities.aliases = nil
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
		o.Actions = x.actions.take()
	case x.suspended:
		// DurableTask.Core/TaskOrchestrationContext.cs,
		// HandleExecutionSuspendedEvent: nothing new is begun until the instance
		// is resumed. The actions stay pending, here and in every replay.
	default:
		o.Actions = x.actions.take()
		clear(x.entities.pending)
	}
	return o
}

// Fail has an Execution without code fail in its next episode, unless that
// terminates it.
func (x *Execution) Fail(failure *history.FailureDetails) { x.failure = failure }

// Close unwinds the orchestrator if it has not returned. It must be called.
func (x *Execution) Close() { x.group.Close() }

// Instance returns which execution of which instance this is.
func (x *Execution) Instance() history.OrchestrationInstance { return x.instance }

// Started returns the event that began the execution. It is not nil in the
// orchestrator's code.
func (x *Execution) Started() *history.ExecutionStarted { return x.started }

// version returns the version of the instance.
func (x *Execution) version() string {
	if x.started == nil {
		return ""
	}
	return x.started.Version
}

// Now returns the orchestrator's current time, that of the episode.
func (x *Execution) Now() time.Time { return x.now }

// IsReplaying reports whether the orchestrator is being shown its history.
func (x *Execution) IsReplaying() bool { return x.replaying }

// IsUnwinding reports whether the orchestrator has ended or is being taken out
// of memory, so that only its deferred calls run.
func (x *Execution) IsUnwinding() bool { return x.group.Closing() }

// HistoryLength returns how many events the history has, with those of the
// present episode that the orchestrator has seen or caused. It is the same in
// every replay.
func (x *Execution) HistoryLength() int {
	return x.historySize.arrived + 2*x.historySize.episodes - 1 + x.actions.next + x.patches.count
}

// HistorySize returns roughly how many bytes the history has: the texts that
// arrived, and 128 bytes for each event. It is the same in every replay.
func (x *Execution) HistorySize() int {
	return x.historySize.size + eventSize*x.HistoryLength()
}

// SetCustomStatus sets the instance's custom status to JSON text.
func (x *Execution) SetCustomStatus(status *string) {
	x.check("SetCustomStatus")
	x.status = status
}

// begin starts the orchestrator.
func (x *Execution) begin(e *history.ExecutionStarted) {
	if x.started != nil {
		return // a start that was delivered twice
	}
	x.started = e
	if x.code == nil {
		return
	}
	x.group.Go(func() { x.returned(x.code(x, e.Input)) })
}

// run lets the coroutines run that the last event woke, until all wait.
func (x *Execution) run() {
	x.Progressed()
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

// Collect returns a Collector of fs. Its Stop must be called.
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

// ContinueAsNew returns the error that an orchestrator must return, wrapped or
// not, to go on as a new execution with the given input.
func (x *Execution) ContinueAsNew(input *string) error {
	return x.ContinueAsNewAs(input, Continuation{})
}

// ContinueAsNewAs is ContinueAsNew with all that can be said of how.
func (x *Execution) ContinueAsNewAs(input *string, how Continuation) error {
	x.check("ContinueAsNew")
	x.continuedAsNew = true
	return &continueAsNew{input, how}
}

// returned ends the execution with what the orchestrator returned. It runs in
// the orchestrator's coroutine, so that the methods of a user's error do too.
func (x *Execution) returned(output *string, err error) {
	x.group.Stop() // branches take no further step
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

// finish decides how the execution ends, in place of how it was to end before,
// if it was.
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

// terminate ends the execution from outside. What was decided before counts,
// as if it had been an earlier episode, unless the instance was suspended.
//
// An execution that continues as new and is terminated by the same episode is
// terminated: its next generation would not get the message.
func (x *Execution) terminate(e *history.ExecutionTerminated) {
	if x.over || x.complete != nil && x.complete.Status != history.ContinuedAsNew && !x.deferredEnd {
		return
	}
	if x.suspended || x.deferredEnd {
		x.actions.clear()
	}
	x.deferredEnd = false
	x.finish(history.Terminated, nil).Result = e.Reason
	x.group.Close()
}

// see takes one event of the history or of the new episode.
func (x *Execution) see(e history.Event) {
	x.historySize.add(e)
	closes := false
	switch e := e.(type) {
	case *history.OrchestratorStarted:
		x.endOfEpisode()
		x.now = history.Ticks(e.Timestamp) // as it will be read from the history
	case *history.OrchestratorCompleted:
		closes = !e.IsPlayed
	case *history.TaskScheduled, *history.TimerCreated,
		*history.SubOrchestrationInstanceCreated, *history.EventSent:
		x.match(e)
	case *history.ExecutionCompleted, *history.ContinueAsNew:
		x.ended()
	case *history.GenericEvent:
		x.rewind(e.EventID)
		x.patches.see(e)
	case *history.ExecutionTerminated:
		x.terminate(e)
	case *history.ExecutionSuspended:
		x.suspend(e)
	case *history.ExecutionResumed:
		x.resume()
	default:
		if x.suspended {
			x.held = append(x.held, e)
		} else {
			x.deliver(e)
		}
	}
	x.recorded.closed = closes
}

// deliver shows an event to the orchestrator and lets it run.
func (x *Execution) deliver(e history.Event) {
	if x.complete != nil {
		// Only a next generation could still want it.
		if e, ok := e.(*history.EventRaised); ok && !x.isAnswer(e) {
			x.lateEvents = append(x.lateEvents, e)
		}
		return
	}
	switch e := e.(type) {
	case *history.ExecutionStarted:
		x.begin(e)
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
		return // HistoryState, ExecutionRewound: nothing to the orchestrator
	}
	x.run()
}

// suspend stops the delivery of events, until the instance is resumed
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent).
func (x *Execution) suspend(e *history.ExecutionSuspended) {
	if x.complete != nil {
		x.pendingSuspend, x.deferredEnd = e, x.deferredEnd || x.replaying
		return
	}
	x.suspended = true
}

// resume delivers what came in the meantime, in order.
func (x *Execution) resume() {
	x.pendingSuspend, x.deferredEnd = nil, false
	if !x.suspended {
		return
	}
	x.suspended = false
	held := x.held
	x.held = nil
	for _, e := range held {
		x.deliver(e)
	}
}

// AwaitAny waits until one of fs is complete, and returns the index of the one
// that was first. The others have lost a race: those that wait for an external
// event get none any more, until they are awaited again.
func (x *Execution) AwaitAny(fs []*Future) int {
	x.checkOwn("AwaitAny", fs)
	winner := earliest(fs)
	if winner < 0 {
		x.check("AwaitAny")
		if len(fs) == 0 {
			panic(x.misuse("durable: AwaitAny was called without tasks, and would wait for ever"))
		}
		for i, f := range fs {
			if x.events.renew(f); f.IsComplete() {
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
	x.events.read(fs[winner])
	x.withdraw(fs)
	return winner
}

// withdraw makes those of fs for which nothing waits receive no external event.
func (x *Execution) withdraw(fs []*Future) {
	for _, f := range fs {
		if f.wait != nil && !f.IsComplete() && !f.isAwaited() {
			x.events.withdraw(f)
		}
	}
}

// Branch runs body as another coroutine, and completes f when it returns.
func (x *Execution) Branch(f *Future, body func()) {
	x.check("Go")
	f.x, f.kind = x, branchKind
	x.group.Go(func() {
		body()
		f.complete(nil)
	})
}

// Completed makes f complete from the start, with no event.
func (x *Execution) Completed(f *Future) {
	f.x, f.kind = x, branchKind
	f.complete(nil)
}

// ended notes that the history has the end of the execution.
func (x *Execution) ended() {
	x.over = true
	x.group.Close()
}

// IsSuspended reports whether the instance takes no notice of events.
func (x *Execution) IsSuspended() bool { return x.suspended || x.deferredEnd }

// Ended returns how the orchestrator ended, nil if it has not.
func (x *Execution) Ended() *Complete { return x.complete }

// Refit returns an Execution that fits a history which x does not fit, and its outcome; nil if
// none does. X has seen nothing but past and fresh. The answers of [Execution.Patched] differ:
// DurableTask replays a GenericEvent without any effect and writes no markers
// (DurableTask.Core/TaskOrchestrationExecutor.cs, ProcessEvent). So if a .NET worker has carried
// the execution past a question, only the decisions behind it tell the answer. From one of the
// questions without a marker on, all answers are yes. The last question for which the history
// fits is the one.
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

// Observe sets the observer. The caller sets it before the first episode, or the code when it
// begins.
func (x *Execution) Observe(o Observer) { x.observer = o }

// Progressed reports a step to the observer, if there is one.
func (x *Execution) Progressed() {
	if x.observer != nil {
		x.observer.Progressed()
	}
}
