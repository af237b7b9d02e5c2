package explain

import (
	"cmp"
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
	Since     time.Time // when it was begun; for an event, the time of the last episode
	Due       time.Time // when the timer fires; zero for all else
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
	if d := x.Divergence(); d != nil {
		return nil, Divergence(d).locate(events)
	}
	var all []Wait
	add := func(f *replay.Future, w Wait) {
		if a, ok := x.Attempt(f); ok {
			if a.Number <= a.Most { // after the last there is a timer, too
				w.Name, w.Attempt, w.Attempts = a.Of.Name(), a.Number, a.Most
			}
			f = a.Of
		}
		if f.IsAwaited() {
			w.Where = places(f.Waiters())
		} else if w.Kind == Timer || w.Kind == Event {
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
	last := lastEpisode(events)
	for _, f := range x.EventWaits() {
		add(f, Wait{Kind: Event, Name: f.Name(), Task: -1, Since: last})
	}
	return all, nil
}

// unanswered returns what a history has begun and not completed, by number.
func unanswered(events []history.Event) map[int]Wait {
	open := map[int]Wait{}
	calls := map[string]int{} // of entities: the numbers of requests by ID and by origin
	for _, e := range events {
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
				delete(open, answered)
			}
		}
		if completed, ok := history.Completes(e); ok {
			delete(open, completed)
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

// lastEpisode returns when the last episode of a history began.
func lastEpisode(events []history.Event) time.Time {
	for _, e := range slices.Backward(events) {
		if e.Type() == history.TypeOrchestratorStarted {
			return e.Head().Timestamp
		}
	}
	return time.Time{}
}

// ownCode is the beginning of the names of functions of this module's engine.
const ownCode = "github.com/durablefunctions-go/durablefunctions/durable"

// places returns, for each stack, the innermost line of code that is not the engine's.
func places(stacks [][]uintptr) []string {
	var all []string
	for _, pcs := range stacks {
		frames := runtime.CallersFrames(pcs)
		for more := len(pcs) > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			rest, own := strings.CutPrefix(f.Function, ownCode)
			if own && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/internal/")) || f.File == "" {
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
