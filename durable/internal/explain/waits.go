package explain

import (
	"cmp"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// The kinds of waits.
const (
	Activity         = "activity"
	Step             = "step"
	SubOrchestration = "subOrchestration"
	Timer            = "timer"
	Event            = "event"
	EntityCall       = "entityCall"
	EntityLock       = "entityLock"
)

// Wait describes something that an orchestrator waits for.
type Wait struct {
	Kind      string
	Name      string    // of the function, operation or event; for the timer of a retry, of the retried function
	Task      int       // the number of the action; -1 for an event
	Instances []string  // the child instance or the entities
	Since     time.Time // when it was scheduled; for an event, the time of the episode that started to wait
	Due       time.Time // when the timer fires; zero for other kinds
	// IsOutcomeStored means that the history has the outcome, but the instance is suspended and will
	// get it when it is resumed.
	IsOutcomeStored bool
	// IsAwaited means that code waits for it. It is false if the code is unknown.
	IsAwaited bool
	// LastError is the error of the previous attempt. It is empty for a first attempt.
	LastError string
	// Attempt is the number of the attempt, or of the attempt that follows the timer. Attempts
	// is the maximum number of attempts. Both are zero for a first attempt.
	Attempt, Attempts int
	Poll              *replay.RunStep // the poll that waits for its next call; nil for other waits
	Where             []string        // the source lines that wait, such as "order.go:103"; nil if none does or unknown
}

// Waits returns what the execution of a history waits for. With code, these are the waits of
// its coroutines with their source lines, and other work in flight, such as the rest of a
// fan-out. Without code, these are all incomplete tasks. If the code differs from the history,
// Waits returns the difference.
func Waits(code replay.Code, events []history.Event) ([]Wait, *Difference) {
	open := incompleteTasks(events)
	if code == nil {
		all := make([]Wait, 0, len(open))
		for _, w := range open {
			all = append(all, w)
		}
		slices.SortFunc(all, func(a, b Wait) int { return cmp.Compare(a.Task, b.Task) })
		return all, nil
	}
	start := history.StartOf(events)
	x := replay.New(start.Instance, code)
	defer x.Close()
	x.TraceWaits()
	past, _ := untilEnd(events)
	x.Episode(past, nil)
	if fits, _ := x.Refit(past, nil); fits != nil {
		defer fits.Close()
		x = fits
	}
	if d := divergence(x, events); d != nil {
		return nil, d
	}
	var all []Wait
	add := func(f *replay.Future, w Wait) {
		if began, due, ok := x.LongTimer(f); ok {
			w.Since, w.Due = began, due
		}
		if a, ok := x.Attempt(f); ok {
			if a.Number <= a.MaxAttempts { // a timer follows the last attempt, too
				w.Name, w.Attempt, w.Attempts = a.Operation.Name(), a.Number, a.MaxAttempts
			}
			w.LastError = failureText(a.PreviousFailure)
			f = a.Operation
		}
		if stacks := f.WaiterStacks(); len(stacks) > 0 {
			w.IsAwaited, w.Where = true, sourceLines(stacks)
		} else if !f.IsAwaited() && (w.Kind == Timer || w.Kind == Event) {
			return
		}
		all = append(all, w)
	}
	for _, f := range x.IncompleteFutures() {
		w, scheduled := open[f.ID()]
		if step := x.UnrecordedStep(f.ID()); step != nil {
			w, scheduled = Wait{Kind: Step, Name: step.Name, Task: step.ID, Since: step.DecidedAt}, true
			if step.Poll != nil {
				w.Poll = step
			}
		}
		if scheduled {
			add(f, w)
		}
	}
	for _, c := range x.EntityCalls() {
		if w, scheduled := open[c.ID()]; scheduled {
			add(c.Future, w)
		}
	}
	for _, f := range x.EventWaits() {
		add(f, Wait{Kind: Event, Name: f.Name(), Task: -1, Since: f.WaitsSince()})
	}
	markHeldEvents(all, events)
	return all, nil
}

// markHeldEvents marks the waits whose events arrived while the instance is suspended. If
// several waits have the same event name, the newest one, which is last, gets the event.
func markHeldEvents(waits []Wait, events []history.Event) {
	held := map[string]int{}
	suspended := false
	for _, e := range events {
		suspended = isSuspendedAfter(e, suspended)
		if raised, ok := e.(*history.EventRaised); ok && suspended {
			held[strings.ToUpper(raised.Name)]++
		} else if !suspended {
			clear(held)
		}
	}
	for i := range slices.Backward(waits) {
		if name := strings.ToUpper(waits[i].Name); waits[i].Kind == Event && held[name] > 0 {
			waits[i].IsOutcomeStored = true
			held[name]--
		}
	}
}

// isSuspendedAfter reports whether an instance is suspended after event e. before says whether it was
// before.
func isSuspendedAfter(e history.Event, before bool) bool {
	if t := e.Type(); t == history.TypeExecutionSuspended || t == history.TypeExecutionResumed {
		return t == history.TypeExecutionSuspended
	}
	return before
}

// Suspension describes the current suspension of an instance.
type Suspension struct {
	Since  time.Time
	Reason *string // of the latest suspension event
}

// SuspensionOf returns the suspension at the end of a history, or nil.
func SuspensionOf(events []history.Event) (s *Suspension) {
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionSuspended:
			if s == nil {
				s = &Suspension{Since: e.Timestamp}
			}
			s.Reason = e.Reason
		case *history.ExecutionResumed:
			s = nil
		}
	}
	return s
}

// failureText returns the error text of a failure event.
func failureText(e history.Event) string {
	var details *history.FailureDetails
	var reason *string
	switch e := e.(type) {
	case *history.TaskFailed:
		details, reason = e.Failure, e.Reason
	case *history.SubOrchestrationInstanceFailed:
		details, reason = e.Failure, e.Reason
	}
	switch {
	case details != nil:
		return details.ErrorMessage
	case reason != nil:
		return *reason
	}
	return ""
}

// incompleteTasks returns the incomplete tasks of a history by number. It also returns the tasks
// that completed while the instance is suspended, with IsOutcomeStored set.
func incompleteTasks(events []history.Event) map[int]Wait {
	open := map[int]Wait{}
	calls := map[string]int{} // the numbers of entity requests, by request ID and by origin
	suspended := false
	complete := func(id int) {
		if w, ok := open[id]; ok && suspended {
			w.IsOutcomeStored = true
			open[id] = w
		} else {
			delete(open, id)
		}
	}
	for _, e := range events {
		suspended = isSuspendedAfter(e, suspended)
		id, at := e.Head().EventID, e.Head().Timestamp
		switch e := e.(type) {
		case *history.TaskScheduled:
			open[id] = Wait{Kind: Activity, Name: e.Name, Task: id, Since: at}
		case *history.SubOrchestrationInstanceCreated:
			if _, forgotten := e.Tags[history.FireAndForget]; !forgotten {
				open[id] = Wait{Kind: SubOrchestration, Name: e.Name, Task: id, Since: at, Instances: []string{e.InstanceID}}
			}
		case *history.TimerCreated:
			open[id] = Wait{Kind: Timer, Task: id, Since: at, Due: e.FireAt}
		case *history.EventSent:
			if w, r := waitForEntity(e); r != nil {
				open[id] = w
				calls[strings.ToLower(r.ID)] = id
				if r.Origin != "" {
					calls[r.Origin] = id
				}
			}
		case *history.EventRaised:
			if answered, ok := calls[cmp.Or(entity.OriginOfAnswer(e), strings.ToLower(e.Name))]; ok {
				complete(answered)
			}
		case *history.ExecutionResumed:
			maps.DeleteFunc(open, func(_ int, w Wait) bool { return w.IsOutcomeStored })
		}
		if id, ok := history.StepStartOf(e); ok {
			if w, isOpen := open[id]; isOpen { // not after a rewind
				w.Kind = Step
				open[id] = w
			}
		}
		if completed, ok := history.Completes(e); ok {
			complete(completed)
		}
	}
	return open
}

// waitForEntity returns the wait for an entity's answer to event e, and the request; a nil
// request if e expects no answer.
func waitForEntity(e *history.EventSent) (Wait, *entity.Request) {
	if !history.IsEntity(e.InstanceID) || entity.IsRelease(e.Name) {
		return Wait{}, nil
	}
	r, err := entity.DecodeRequest(e.Input)
	if err != nil || r.Signal {
		return Wait{}, nil
	}
	w := Wait{Kind: EntityCall, Name: r.Operation, Task: e.EventID, Since: e.Timestamp, Instances: []string{e.InstanceID}}
	if r.IsLock() {
		w.Kind, w.Instances = EntityLock, nil
		for _, id := range r.LockSet {
			w.Instances = append(w.Instances, id.String())
		}
	}
	return w, r
}

// ownCode is the common prefix of the engine's packages.
const ownCode = "github.com/durablefunctions-go/durablefunctions/durable"

// ownPackages are the packages below ownCode that orchestrators call or that call
// orchestrators.
var ownPackages = []string{".", "/internal/replay.", "/internal/coro.", "/internal/explain.", "/internal/dispatch."}

// sourceLines returns, for each stack, the innermost line that is not the engine's, without
// duplicates.
func sourceLines(stacks [][]uintptr) []string {
	var all []string
	for _, pcs := range stacks {
		frames := runtime.CallersFrames(pcs)
		for more := len(pcs) > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			rest, own := strings.CutPrefix(f.Function, ownCode)
			if own && slices.ContainsFunc(ownPackages, func(p string) bool { return strings.HasPrefix(rest, p) }) || f.File == "" {
				continue
			}
			if !strings.HasPrefix(f.Function, "iter.") && !strings.HasPrefix(f.Function, "runtime.") {
				all = append(all, filepath.Base(f.File)+":"+strconv.Itoa(f.Line))
			}
			break
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
