package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An execution runs the episodes of one instance.
type execution struct {
	start *history.ExecutionStarted // nil before the start is received
	code  replay.Code
	live  *replay.Execution // nil before the first episode
	ended bool

	// The following fields describe the last episode. opening has its first events: OrchestratorStarted and
	// the arrived events. After a continue-as-new it also has the events that run inserted between them.
	// newSteps has the steps that it decided, except the polls in sleeping, which wait for a delayed message.
	// reads is set if its code has read the time. intake has its messages.
	opening  []history.Event
	newSteps []*replay.RunStep
	sleeping []*replay.RunStep
	reads    bool
	intake   intake

	// now is the worker's clock; stopping reports whether the worker is stopping.
	now      func() time.Time
	stopping func() bool
	progress *progress // of live
	turn     *turn     // current or last turn; nil in a [Stepper]
	// limit runs f, which runs code of the orchestrator, until f returns or is abandoned. If f
	// returns later, limit calls late. After an error the execution must not be used.
	limit func(x *execution, f, late func()) error
	// stalls, if not nil, holds the instances whose code was abandoned.
	stalls *Stalls
	// ran, if not nil, is called after each generation. Past is the history that was replayed.
	ran func(past, fresh []history.Event, outcome replay.Outcome)
	// storeInputs is [Config.StoreInputs].
	storeInputs bool
	// versions decides about the versions of instances, and unknown about instances whose
	// function the worker lacks.
	versions versions
	unknown  unknownPolicy
	// holdNonDeterministic is [Config.HoldNonDeterministic].
	holdNonDeterministic bool
	// failure, if not nil, fails the execution instead of running it.
	failure *history.FailureDetails
	// crashed, if not nil, reports whether the instance is set aside because its code crashed
	// the process.
	crashed func() bool
}

// prepare prepares x for the execution with the given start.
func (x *execution) prepare(start *history.ExecutionStarted, functions Functions) error {
	x.start, x.code, x.failure = start, nil, nil
	mismatch, err := x.versions.check(start)
	if err != nil {
		return err
	}
	if mismatch != nil {
		x.failure = mismatch.Failure()
		return nil
	}
	code, ok := functions.Orchestrator(start.Name, start.Version)
	if !ok {
		return &unknownFunctionError{kind: "orchestrator", name: start.Name, version: start.Version}
	}
	if x.crashed != nil && x.crashed() {
		return &unknownFunctionError{kind: "orchestrator", name: start.Name, version: start.Version, crashed: true}
	}
	if x.stalls != nil {
		if stall := x.stalls.get(start); stall != nil {
			return stall
		}
	}
	x.code = code
	return nil
}

// runMessages runs the episode that takes the results of steps and messages. It returns the episode's
// checkpoint and the messages that it discards. If nothing is left to take, the checkpoint has no
// events; without an execution, the checkpoint is for the given instance. For past see
// [execution.episode].
func (x *execution) runMessages(functions Functions, instance history.OrchestrationInstance, past []history.Event, messages []provider.TaskMessage, results []history.Event) (*provider.Checkpoint, []droppedMessage, error) {
	x.opening, x.newSteps, x.sleeping, x.reads = nil, nil, nil, false
	in, err := reconcile(x.start, past, messages)
	x.intake = in
	if err != nil {
		return nil, nil, err
	}
	refusals := in.refusals(x.now())
	if in.start != nil {
		in.events = slices.Concat(results, in.events)
	}
	replays := (in.wakes || in.polls != nil) && in.start != nil && x.live == nil
	if len(in.events) == 0 && !replays {
		if x.start != nil {
			instance = x.start.Instance
		}
		return &provider.Checkpoint{Instance: instance, Messages: refusals}, in.dropped, nil
	}
	cp, err := x.runEvents(functions, past, in)
	if err != nil {
		return nil, in.dropped, err
	}
	if len(in.events) == 0 && len(cp.NewEvents) == 2 { // OrchestratorStarted and OrchestratorCompleted
		cp.NewEvents = nil
		if x.live != nil {
			x.live.DropEpisode()
		}
	}
	cp.Messages = append(cp.Messages, refusals...)
	x.divideSteps()
	return cp, in.dropped, nil
}

// divideSteps removes the sleeping polls from the new steps. A poll that was decided in the last
// episode does not sleep.
func (x *execution) divideSteps() {
	awake := x.newSteps[:0]
	for _, step := range x.newSteps {
		if step.Poll == nil || step.DecidedAt.Equal(x.live.Now()) || x.intake.wakesPoll(step) {
			awake = append(awake, step)
		} else {
			x.sleeping = append(x.sleeping, step)
		}
	}
	x.newSteps = awake
}

// runEvents runs the episode that takes the events of an intake.
func (x *execution) runEvents(functions Functions, past []history.Event, in intake) (*provider.Checkpoint, error) {
	if x.code != nil {
		return x.episodeThatFits(functions, past, in.events)
	}
	if x.start == nil && hasTermination(in.events) {
		x.start = in.start // the execution never runs
		return x.episode(functions, past, in.events)
	}
	if held := x.prepare(in.start, functions); held != nil {
		return x.runWithoutCode(past, in.events, held)
	}
	return x.episodeThatFits(functions, past, in.events)
}

// episodeThatFits runs an episode. If the code does not match the history and such instances
// are held back, it continues without code.
func (x *execution) episodeThatFits(functions Functions, past, arrived []history.Event) (*provider.Checkpoint, error) {
	cp, err := x.episode(functions, past, arrived)
	if unknown, ok := errors.AsType[*unknownFunctionError](err); ok && unknown.differs {
		x.close()
		x.code = nil
		return x.runWithoutCode(past, arrived, err)
	}
	return cp, err
}

// size returns the approximate size of the execution in memory, in bytes.
func (x *execution) size() int {
	if x.live == nil {
		return 0
	}
	return x.live.HistorySize()
}

// close unwinds the orchestrator.
func (x *execution) close() {
	if x.live != nil {
		x.live.Close()
		x.live = nil
	}
}

// episode runs the instance's next episode with the arrived events, and returns its checkpoint.
// Past is the execution's history, or empty if x ran its earlier episodes itself.
//
// If an orchestrator continues as new, its next generation runs immediately
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync). The checkpoint
// then contains the events of the last generation and the messages of all generations.
func (x *execution) episode(functions Functions, past, arrived []history.Event) (*provider.Checkpoint, error) {
	cp := &provider.Checkpoint{KeepCustomStatus: x.code == nil && len(past) > 0}
	fresh := make([]history.Event, 0, len(arrived)+1)
	fresh = append(fresh, &history.OrchestratorStarted{Header: history.NewHeader(episodeTime(arrived, x.now()))})
	fresh = append(fresh, arrived...)
	markPlayed(arrived)
	cp.NewEvents = append(cp.NewEvents, fresh...)
	x.opening = fresh
	if hasNotRun(past, fresh) {
		past, fresh = nil, slices.Concat(past, fresh)
	}

	cp.Instance = x.start.Instance
	for generation := 1; ; generation++ {
		next, err := x.run(cp, past, fresh)
		if err != nil || next == nil {
			return cp, err
		}
		x.close()
		if generation == 1 {
			x.opening = x.openingIn(cp.NewEvents)
		}
		now := x.now()
		x.start = nextStart(x.start, next, nextExecutionID(x.start.Instance), now)
		past, fresh = nil, nextEvents(x.start, next, now)
		cp.Instance, cp.NewEvents, cp.ContinuedAsNew = x.start.Instance, slices.Clone(fresh), true
		unknown := x.prepare(x.start, functions)
		switch {
		case next.Suspended != nil:
			// The suspension arrived too late for the generation that ended. The next one may
			// end as quickly, so it waits until it is resumed before it runs.
			return cp, nil
		case unknown != nil:
			// The next generation has a new version, which another worker runs.
			cp.Messages = append(cp.Messages, wake(x.start, now))
			return cp, nil
		case generation >= maxGenerations, messagesIn(cp) >= maxGenerationMessages, x.stopping():
			cp.Messages = append(cp.Messages, wake(x.start, now))
			return cp, nil
		}
	}
}

// openingIn returns the events of a checkpoint until the last event of x.opening. They include markers of
// changes, and copies of answers except of the last event.
func (x *execution) openingIn(events []history.Event) []history.Event {
	return events[:1+slices.Index(events, x.opening[len(x.opening)-1])]
}

// run runs the current generation with the events, and adds its decisions to cp. If the generation continues
// as new, it returns its last action; otherwise nil.
func (x *execution) run(cp *provider.Checkpoint, past, fresh []history.Event) (*replay.Complete, error) {
	outcome, err := x.decide(past, fresh)
	if err != nil {
		return nil, err
	}
	if d := x.live.Divergence(); d != nil && x.holdNonDeterministic {
		return nil, fmt.Errorf("%w: %w", &unknownFunctionError{
			kind: "orchestrator", name: x.start.Name, version: x.start.Version, differs: true,
		}, d)
	}

	// In its first checkpoint, a generation that sets no custom status keeps the status of the
	// previous generation (DurableTask.Core/TaskOrchestrationDispatcher.cs, OnProcessWorkItemAsync).
	if outcome.CustomStatus != nil {
		cp.CustomStatus = outcome.CustomStatus
	}
	cp.NewEvents = withAliases(cp.NewEvents, outcome.Aliases)
	now := x.now()
	x.newSteps, x.reads = outcome.Steps, x.reads || outcome.ReadsTime
	cp.NewEvents = withPatches(cp.NewEvents, outcome.Patched, now)
	end, err := record(cp, x.start, outcome.Actions, x.storeInputs, now)
	if err != nil {
		return nil, fmt.Errorf("record what %s decided: %w", x.start.Name, err)
	}
	if end != nil && end.Status == history.ContinuedAsNew {
		return end, nil
	}
	x.ended = end != nil
	// The first episode of a later generation already ends with a played event. It gets a second one if
	// steps are open.
	isOpen := x.live.HasUnrecordedSteps()
	if isOpen || cp.NewEvents[len(cp.NewEvents)-1].Type() != history.TypeOrchestratorCompleted {
		closing := &history.OrchestratorCompleted{Header: history.NewHeader(now)}
		closing.IsPlayed = isOpen // tells replay that records are missing
		cp.NewEvents = append(cp.NewEvents, closing)
	}
	return nil, nil
}

// withAliases inserts a copy of each answer, under the name that .NET waits for. The copy
// follows the answer. If an earlier episode received the answer, the copy follows
// OrchestratorStarted: replay needs it when it makes the request.
func withAliases(events []history.Event, aliases []replay.Alias) []history.Event {
	for _, a := range aliases {
		named := new(*a.Answer)
		named.Name = a.Name
		same := func(e history.Event) bool { return e == history.Event(a.Answer) }
		events = slices.Insert(events, max(0, slices.IndexFunc(events, same))+1, history.Event(named))
	}
	return events
}

// withPatches inserts markers of changes after OrchestratorStarted, the first event, and
// therefore before all events that may depend on the changes.
func withPatches(events []history.Event, ids []string, now time.Time) []history.Event {
	for i, id := range ids {
		events = slices.Insert(events, 1+i, history.Event(history.NewPatch(id, now)))
	}
	return events
}

// decide runs the current generation with the events.
func (x *execution) decide(past, fresh []history.Event) (replay.Outcome, error) {
	isFirst := x.live == nil
	if isFirst {
		x.live, x.progress = replay.New(x.start.Instance, x.code), new(progress)
		x.live.Observe(x.progress)
	}
	if x.code == nil {
		x.live.Fail(x.failure)
		return x.live.Episode(past, fresh), nil
	}
	live := x.live
	var outcome replay.Outcome
	err := x.limit(x, func() {
		outcome = live.Episode(past, fresh)
		if isFirst {
			if fits, o := live.Refit(past, fresh); fits != nil {
				live.Close()
				live, outcome = fits, o
			}
		}
	}, func() { live.Close() })
	if err != nil {
		return replay.Outcome{}, err
	}
	x.live = live
	if x.ran != nil {
		x.ran(past, fresh, outcome)
	}
	return outcome, nil
}

// episodeTime returns the time of an episode that takes the arrived events and starts at now. It is at or
// after the due time of each fired timer, even if clocks differ: otherwise a sleep could end early. Two
// attempts at an episode have different times; see [entity.Sorter].
func episodeTime(arrived []history.Event, now time.Time) time.Time {
	at := now
	for _, e := range arrived {
		if t, ok := e.(*history.TimerFired); ok && t.FireAt.After(at) {
			at = t.FireAt.Add(now.Sub(now.Truncate(time.Millisecond)))
		}
	}
	return at
}

func messagesIn(cp *provider.Checkpoint) int {
	return len(cp.Activities) + len(cp.Timers) + len(cp.Messages)
}

// runWithoutCode runs an episode that needs no code: one that terminates the execution, leaves
// it suspended, or fails it. Otherwise it returns held, the reason why the code is missing.
func (x *execution) runWithoutCode(past, arrived []history.Event, held error) (*provider.Checkpoint, error) {
	cp, err := x.episode(nil, past, arrived)
	if err != nil || x.ended {
		return cp, err
	}
	suspended := x.live.IsSuspended()
	x.close() // the next episode needs the code
	if suspended {
		return cp, nil
	}
	unknown, ok := errors.AsType[*unknownFunctionError](held)
	due, started := dueOf(x.start), len(past) > 0
	if stall, ok := errors.AsType[*stall](held); ok {
		if x.failure = stall.Failure(); x.failure == nil {
			return nil, unknown
		}
		return x.episode(nil, past, arrived)
	}
	switch {
	case !ok || unknown.crashed || unknown.differs || unknown.refusal != "":
		return nil, held
	case !x.unknown.fails(due, x.now(), started):
		return nil, x.unknown.hold(held, due, started)
	}
	x.failure = unknown.Failure()
	return x.episode(nil, past, arrived)
}

// isDeferrable reports whether the checkpoint of the last episode of x may be deferred. Received
// events may arrive in another order after a crash, and the repetition would run other steps under
// the same numbers. A poll would get another schedule.
func (x *execution) isDeferrable(cp *provider.Checkpoint) bool {
	if len(x.newSteps) == 0 || x.ended || x.reads || cp.ContinuedAsNew || messagesIn(cp) > 0 ||
		len(cp.NewEvents) > 0 && slices.ContainsFunc(x.newSteps, func(s *replay.RunStep) bool { return s.Poll != nil }) {
		return false
	}
	switch len(x.opening) {
	case 1:
		return true
	case 2:
		return x.opening[1].Type() == history.TypeExecutionStarted
	}
	return false
}
