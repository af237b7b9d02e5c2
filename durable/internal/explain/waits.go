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

// Kinds of what can be waited for.
const (
	Activity         = "activity"
	SubOrchestration = "subOrchestration"
	Timer            = "timer"
	Event            = "event"
	EntityCall       = "entityCall"
	EntityLock       = "entityLock"
)

// A Wait is something that an orchestrator waits for.
type Wait struct {
	Kind      string
	Name      string    // of the function, operation or event; of a timer, of what is tried again then
	Task      int       // the number of the action; -1 for an event
	Instances []string  // the child, or the entities
	Since     time.Time // the time of its start; for an event, of the episode that began to wait
	Due       time.Time // when the timer fires; zero for all else
	// Held reports that the history has its outcome, which the suspended instance takes when it
	// is resumed.
	Held bool
	// IsAwaited reports that code waits for it. Without code it is false.
	IsAwaited bool
	// LastError is the error of the previous attempt. It is empty for a first attempt.
	LastError string
	// Attempt says which attempt it is, or the timer is before, of how many there may be,
	// if an earlier one has failed; else both are zero.
	Attempt, Attempts int
	Where             []string // where the code waits, such as "order.go:103"; nil where it does not, or is not known
}

// Waits returns what the execution of a history waits for: with code, what its
// coroutines wait for and where, and other work that is under way, such as the rest of a
// fan-out; without code, all that was begun and is not complete. If the code does
// something else than the history has, it returns the difference.
func Waits(code replay.Code, events []history.Event) ([]Wait, *Difference) {
	open := unanswered(events)
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
			if a.Number <= a.Most { // after the last there is a timer, too
				w.Name, w.Attempt, w.Attempts = a.Of.Name(), a.Number, a.Most
			}
			w.LastError = failure(a.After)
			f = a.Of
		}
		if stacks := f.Waiters(); len(stacks) > 0 {
			w.IsAwaited, w.Where = true, places(stacks)
		} else if !f.IsAwaited() && (w.Kind == Timer || w.Kind == Event) {
			return
		}
		all = append(all, w)
	}
	for _, f := range x.Open() {
		if w, begun := open[f.ID()]; begun {
			add(f, w)
		}
	}
	for _, c := range x.EntityCalls() {
		if w, begun := open[c.ID()]; begun {
			add(c.Future, w)
		}
	}
	for _, f := range x.EventWaits() {
		add(f, Wait{Kind: Event, Name: f.Name(), Task: -1, Since: f.WaitsSince()})
	}
	markHeldEvents(all, events)
	return all, nil
}

// markHeldEvents marks the waits whose events came while the instance was suspended. Of several
// waits for one name the newest, which is last, takes the event.
func markHeldEvents(waits []Wait, events []history.Event) {
	held := map[string]int{}
	suspended := false
	for _, e := range events {
		suspended = suspends(e, suspended)
		if raised, ok := e.(*history.EventRaised); ok && suspended {
			held[strings.ToUpper(raised.Name)]++
		} else if !suspended {
			clear(held)
		}
	}
	for i := range slices.Backward(waits) {
		if name := strings.ToUpper(waits[i].Name); waits[i].Kind == Event && held[name] > 0 {
			waits[i].Held = true
			held[name]--
		}
	}
}

// suspends reports whether an instance is suspended after an event of its history.
func suspends(e history.Event, before bool) bool {
	if t := e.Type(); t == history.TypeExecutionSuspended || t == history.TypeExecutionResumed {
		return t == history.TypeExecutionSuspended
	}
	return before
}

// A Suspension is a stay of an instance in which it takes no events.
type Suspension struct {
	Since  time.Time
	Reason *string // of the latest suspension
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

// failure returns the text of an event that tells a failure.
func failure(e history.Event) string {
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

// unanswered returns the tasks that a history has started and not completed, by number. It marks
// the tasks that were completed while the instance is suspended.
func unanswered(events []history.Event) map[int]Wait {
	open := map[int]Wait{}
	calls := map[string]int{} // of entities: the numbers of requests by ID and by origin
	suspended := false
	complete := func(id int) {
		if w, ok := open[id]; ok && suspended {
			w.Held = true
			open[id] = w
		} else {
			delete(open, id)
		}
	}
	for _, e := range events {
		suspended = suspends(e, suspended)
		id, at := e.Head().EventID, e.Head().Timestamp
		switch e := e.(type) {
		case *history.TaskScheduled:
			open[id] = Wait{Kind: Activity, Name: e.Name, Task: id, Since: at}
		case *history.SubOrchestrationInstanceCreated:
			open[id] = Wait{Kind: SubOrchestration, Name: e.Name, Task: id, Since: at, Instances: []string{e.InstanceID}}
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
			if answered, ok := calls[cmp.Or(entity.OriginOfResponse(e.Input), strings.ToLower(e.Name))]; ok {
				complete(answered)
			}
		case *history.ExecutionResumed:
			maps.DeleteFunc(open, func(_ int, w Wait) bool { return w.Held })
		}
		if completed, ok := history.Completes(e); ok {
			complete(completed)
		}
	}
	return open
}

// waitForEntity returns what an event waits for that was sent to an entity, and the
// request, nil if it is none or not answered.
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

// ownCode is the beginning of the names of functions of the packages that orchestrators call
// and that call them.
const ownCode = "github.com/durablefunctions-go/durablefunctions/durable"

// ownPackages are these packages, below ownCode.
var ownPackages = []string{".", "/internal/replay.", "/internal/coro.", "/internal/explain.", "/internal/dispatch."}

// places returns, for each stack, the innermost line of code that is not the engine's.
func places(stacks [][]uintptr) []string {
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
