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

	started   *history.ExecutionStarted // nil before the orchestrator began
	now       time.Time
	replaying bool
	guids     guids
	status    *string

	actions  actions
	open     open
	events   events
	entities entities
	finished int                   // futures completed so far: what orders them
	legs     map[*Future]time.Time // when long timers are due
	retries  map[*Future]Again     // of what is tried again when it fails
	limit    int                   // the most actions there may be; 0 for no limit
	extent   extent
	attached any
	guard    Guard // nil: what it would be told of panics

	suspended bool
	held      []history.Event // what came while suspended

	renewed  bool      // ContinueAsNew was called
	discards bool      // it leaves unread events behind
	complete *Complete // how it ended; nil while it has not
	late     []*history.EventRaised
	lateHold *history.ExecutionSuspended
	verdict  *history.FailureDetails // what Fail was told
	// withheld says that the history has lateHold: the generation was committed before
	// it ran, and was to wait. How it would end does not count until it is resumed.
	withheld bool
	over     bool // the end was told, or the history has it
	diverged bool // the code does not do what the history has, or there is none

	recorded recorded
}

// New returns an Execution that has seen no event yet. Without code it decides
// nothing of its own: it can be suspended, terminated and failed, and its history
// counts as it is.
func New(instance history.OrchestrationInstance, code Code) *Execution {
	return &Execution{instance: instance, code: code, diverged: code == nil}
}

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
	if x.verdict != nil && x.complete == nil && !x.over {
		x.finish(history.Failed, x.verdict)
	}
	o := Outcome{CustomStatus: x.status, Aliases: x.entities.aliases}
	x.entities.aliases = nil
	switch {
	case x.over, x.withheld:
	case x.complete != nil:
		x.over = true
		if x.diverged {
			x.releaseRecorded()
		}
		if x.complete.Status == history.ContinuedAsNew {
			if !x.discards {
				x.complete.CarryOver = append(x.events.unread(), x.late...)
			}
			x.complete.Suspended = x.lateHold
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
func (x *Execution) Fail(failure *history.FailureDetails) { x.verdict = failure }

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

// LimitActions makes the action after the n-th fail the execution. It is for
// the code to call before it decides anything.
func (x *Execution) LimitActions(n int) { x.limit = n }

// Attach keeps v with the execution, for the code that runs in it.
func (x *Execution) Attach(v any) { x.attached = v }

// Attached returns what Attach was last given, nil if nothing.
func (x *Execution) Attached() any { return x.attached }

// Now returns the orchestrator's current time, that of the episode.
func (x *Execution) Now() time.Time { return x.now }

// IsReplaying reports whether the orchestrator is being shown its history.
func (x *Execution) IsReplaying() bool { return x.replaying }

// IsUnwinding reports whether the orchestrator has ended or is being taken out
// of memory, so that only its deferred calls run.
func (x *Execution) IsUnwinding() bool { return x.group.Closing() }

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
