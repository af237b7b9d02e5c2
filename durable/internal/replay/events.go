package replay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// events are the external events that arrived, and those that wait for them.
//
//  1. Names are compared without regard to case.
//  2. Of several that wait for one name, the newest gets the event; of several
//     events for which nothing waited, the oldest is taken first (the extension's
//     DurableOrchestrationContext.cs, WaitForExternalEvent and RaiseEvent).
//  3. What lost a race waits no longer, and can take no event from others. It
//     waits anew, as the newest, when it is awaited again.
//  4. An event that went to a task which was never awaited is as unread as one
//     for which nothing waited.
type events struct {
	x       *Execution
	names   map[string]*eventName
	arrived int
	taken   []*Future // complete and not read, in no order
}

// eventName is what is known of one name.
type eventName struct {
	buffered []arrival
	waiting  []standing // the newest last; some may wait no longer
	stale    int        // how many of them do not
}

type arrival struct {
	event *history.EventRaised
	place int // among all events of the execution
}

// standing is one wait of a future; it is over when the future has another
// turn.
type standing struct {
	future *Future
	turn   int
}

func (s standing) stands() bool { return s.future.wait.waits && s.future.wait.turn == s.turn }

// eventWait is a future's part in events.
type eventWait struct {
	name  *eventName
	since time.Time // of the episode that made the future
	waits bool
	turn  int
	place int // of the event that completed it, among all
	taken int // one more than its index in events.taken; 0 if it is not there
}

func (v *events) of(name string) *eventName {
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

// take takes the oldest unclaimed event with the given name, nil if there is none.
func (v *events) take(name string) *history.EventRaised {
	n := v.names[strings.ToUpper(name)]
	if n == nil || len(n.buffered) == 0 {
		return nil
	}
	e := n.buffered[0].event
	n.buffered = n.buffered[1:]
	return e
}

// hand completes f with an event.
func (v *events) hand(f *Future, a arrival) {
	f.wait.waits = false
	f.wait.place = a.place
	v.taken = append(v.taken, f)
	f.wait.taken = len(v.taken)
	f.complete(a.event)
}

// renew makes f wait for its event, unless it does so already, it has one or
// it is no event: f takes the oldest unclaimed event, or is the newest to wait.
func (v *events) renew(f *Future) {
	w := f.wait
	if w == nil || w.waits || f.IsComplete() {
		return
	}
	if n := w.name; len(n.buffered) > 0 {
		a := n.buffered[0]
		n.buffered[0] = arrival{}
		n.buffered = n.buffered[1:]
		v.hand(f, a)
		return
	}
	w.waits = true
	w.turn++
	w.name.waiting = append(w.name.waiting, standing{f, w.turn})
}

// withdraw ends f's wait.
func (v *events) withdraw(f *Future) {
	w := f.wait
	if !w.waits {
		return
	}
	w.waits = false
	n := w.name
	n.stale++
	if n.stale > len(n.waiting)/2 {
		n.waiting = slices.DeleteFunc(n.waiting, func(s standing) bool { return !s.stands() })
		n.stale = 0
	}
}

// read notes that the orchestrator has seen that f is complete.
func (v *events) read(f *Future) {
	if f.wait == nil || f.wait.taken == 0 {
		return
	}
	i, last := f.wait.taken-1, v.taken[len(v.taken)-1]
	v.taken[i] = last
	last.wait.taken = i + 1
	v.taken = v.taken[:len(v.taken)-1]
	f.wait.taken = 0
}

// unread returns the events that the orchestrator has not seen, in the order
// in which they came.
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

// WaitEvent makes f the next external event with the given name.
func (v *events) WaitEvent(f *Future, name string) {
	v.x.check("Wait")
	f.x, f.kind, f.name = v.x, raisedKind, name
	f.wait = &eventWait{name: v.of(name), since: v.x.now}
	v.renew(f)
}

// raise gives an event to the future that waits for it. An entity's answer to a
// request that replay has not made yet waits under its origin.
func (v *events) raise(e *history.EventRaised) {
	n := v.of(cmp.Or(entity.OriginOfResponse(e.Input), e.Name))
	a := arrival{e, v.arrived}
	v.arrived++
	for len(n.waiting) > 0 {
		s := n.waiting[len(n.waiting)-1]
		n.waiting = n.waiting[:len(n.waiting)-1]
		if s.stands() {
			v.hand(s.future, a)
			return
		}
		n.stale--
	}
	n.buffered = append(n.buffered, a)
}

// EventWaits returns the waits for external events, in the order of the events'
// names; of one name, the oldest is first.
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
			if s.stands() {
				all = append(all, s.future)
			}
		}
	}
	return all
}

// Unread returns the external events that arrived and that the orchestrator has
// not seen, in the order in which they came.
func (v *events) Unread() []*history.EventRaised { return v.unread() }
