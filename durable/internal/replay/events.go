package replay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// events matches external events with the futures that wait for them.
//
//  1. Names are compared without regard to case.
//  2. If several futures wait for a name, the newest receives the event. If several events are
//     buffered, the oldest is taken first (the extension's DurableOrchestrationContext.cs,
//     WaitForExternalEvent and RaiseEvent).
//  3. A future that lost a race stops waiting and takes no event from others. When it is awaited
//     again, it waits again, as the newest.
//  4. An event counts as unread if nothing waited for it, or if its future was never awaited.
type events struct {
	x       *Execution
	names   map[string]*eventName
	arrived int
	taken   []*Future // futures that are complete and not read, unordered
}

// eventName holds the buffered events and the waiting futures of one name.
type eventName struct {
	buffered []arrival
	waiting  []queuedWait // the newest last; may contain ended waits
	stale    int          // number of ended waits in waiting
}

type arrival struct {
	event *history.EventRaised
	place int // index in the order of arrival, over all names
}

// queuedWait is one wait of a future for an event. It ends when the future's turn changes or the
// future stops waiting.
type queuedWait struct {
	future *Future
	turn   int
}

func (s queuedWait) isCurrent() bool { return s.future.wait.waits && s.future.wait.turn == s.turn }

// eventWait is the state of a future that represents an external event.
type eventWait struct {
	name  *eventName
	since time.Time // time of the episode that made the future
	waits bool
	turn  int
	place int // arrival index of the event that completed the future
	taken int // its index in events.taken plus 1; 0 if absent
}

func (v *events) byName(name string) *eventName {
	key := strings.ToUpper(name)
	n := v.names[key]
	if n == nil {
		if v.names == nil {
			v.names = make(map[string]*eventName)
		}
		n = new(eventName)
		v.names[key] = n
	}
	return n
}

// take removes and returns the oldest buffered event with the given name, or nil.
func (v *events) take(name string) *history.EventRaised {
	n := v.names[strings.ToUpper(name)]
	if n == nil || len(n.buffered) == 0 {
		return nil
	}
	e := n.buffered[0].event
	n.buffered = n.buffered[1:]
	return e
}

// assign completes f with an event.
func (v *events) assign(f *Future, a arrival) {
	f.wait.waits = false
	f.wait.place = a.place
	v.taken = append(v.taken, f)
	f.wait.taken = len(v.taken)
	f.complete(a.event)
}

// listen completes f with the oldest buffered event, or makes it the newest waiting future. It
// does nothing if f is waiting, is complete, or does not represent an event.
func (v *events) listen(f *Future) {
	w := f.wait
	if w == nil || w.waits || f.IsComplete() {
		return
	}
	if n := w.name; len(n.buffered) > 0 {
		a := n.buffered[0]
		n.buffered[0] = arrival{}
		n.buffered = n.buffered[1:]
		v.assign(f, a)
		return
	}
	w.waits = true
	w.turn++
	w.name.waiting = append(w.name.waiting, queuedWait{f, w.turn})
}

// withdraw ends the event waits among fs that no coroutine awaits.
func (v *events) withdraw(fs []*Future) {
	for _, f := range fs {
		w := f.wait
		if w == nil || !w.waits || f.IsComplete() || f.isAwaited() {
			continue
		}
		w.waits = false
		n := w.name
		n.stale++
		if n.stale > len(n.waiting)/2 {
			n.waiting = slices.DeleteFunc(n.waiting, func(s queuedWait) bool { return !s.isCurrent() })
			n.stale = 0
		}
	}
}

// markRead records that the orchestrator has seen the completion of f.
func (v *events) markRead(f *Future) {
	if f.wait == nil || f.wait.taken == 0 {
		return
	}
	i, last := f.wait.taken-1, v.taken[len(v.taken)-1]
	v.taken[i] = last
	last.wait.taken = i + 1
	v.taken = v.taken[:len(v.taken)-1]
	f.wait.taken = 0
}

// unread returns the events that the orchestrator has not seen, in the order of their arrival.
func (v *events) unread() []*history.EventRaised {
	var all []arrival
	for _, n := range v.names {
		all = append(all, n.buffered...)
	}
	for _, f := range v.taken {
		all = append(all, arrival{f.event.(*history.EventRaised), f.wait.place})
	}
	slices.SortFunc(all, func(a, b arrival) int { return cmp.Compare(a.place, b.place) })
	raised := make([]*history.EventRaised, len(all))
	for i, a := range all {
		raised[i] = a.event
	}
	return raised
}

// WaitEvent ties f to the next external event with the given name.
func (v *events) WaitEvent(f *Future, name string) {
	v.x.check("Wait")
	f.x, f.kind, f.name = v.x, raisedKind, name
	f.wait = &eventWait{name: v.byName(name), since: v.x.now}
	v.listen(f)
}

// raise delivers an event to the newest waiting future, or buffers it. An entity's answer to a
// request that replay has not made yet is buffered under its origin.
func (v *events) raise(e *history.EventRaised) {
	n := v.byName(cmp.Or(entity.OriginOfAnswer(e), e.Name))
	a := arrival{e, v.arrived}
	v.arrived++
	for len(n.waiting) > 0 {
		s := n.waiting[len(n.waiting)-1]
		n.waiting = n.waiting[:len(n.waiting)-1]
		if s.isCurrent() {
			v.assign(s.future, a)
			return
		}
		n.stale--
	}
	n.buffered = append(n.buffered, a)
}

// EventWaits returns the futures that wait for external events, sorted by name in upper case.
// Futures with the same name are in the order in which they started to wait.
func (v *events) EventWaits() []*Future {
	if v.x.complete != nil || v.x.over || len(v.names) == 0 {
		return nil
	}
	names := make([]string, 0, len(v.names))
	for name := range v.names {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []*Future
	for _, name := range names {
		for _, s := range v.names[name].waiting {
			if s.isCurrent() {
				all = append(all, s.future)
			}
		}
	}
	return all
}

// UnreadEvents returns the external events that have arrived and that the orchestrator has not
// seen, in the order of their arrival.
func (v *events) UnreadEvents() []*history.EventRaised { return v.unread() }
