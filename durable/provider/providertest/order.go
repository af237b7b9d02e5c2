package providertest

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Order is a hub's guarantee for the order of messages of one sender to one instance.
type Order int

const (
	// OrderWithinFetch means that the messages of one fetch from the storage are in order.
	OrderWithinFetch Order = iota
	// OrderUnlessReturned means that all messages are in order, except those that return to the
	// storage. These are dispatched messages that were not committed, and messages of a worker
	// that has stopped. They can be delivered after later messages.
	OrderUnlessReturned
	// OrderAlways means that all messages are in order, without exception.
	OrderAlways
)

// The tests send numbered events. The events must arrive completely, and in the order that the
// hub guarantees.
var order = area{"order", orderTests()}

// incident is something that happens while events are sent and delivered.
type incident struct {
	name string
	// returns means that messages return to the storage.
	returns bool
	happens func(*line)
}

var incidents = []incident{
	{"a suspension", false, (*line).suspend},
	{"a session that receives more events", false, (*line).hold},
	{"continuing as new with the received events", false, func(l *line) { l.renew(true) }},
	{"continuing as new without the received events", false, func(l *line) { l.renew(false) }},
	{"an abandoned episode", true, (*line).abandon},
	{"a session that is released with uncommitted events", true, (*line).releaseUncommitted},
	{"a worker that stops", true, func(l *line) { l.w.reopen() }},
	{"a worker that crashes", true, (*line).crash},
}

func orderTests() (all []test) {
	add := func(name string, n, names int, of ...incident) {
		returns := false
		for _, x := range of {
			returns = returns || x.returns
		}
		all = append(all, test{fmt.Sprintf("%d events of %d names %s", n, names, name), func(w *world) {
			if returns && len(of) > 1 && w.hub.Order != OrderAlways {
				w.Skip("the hub may reorder returned messages; each incident is tested alone")
			}
			l := &line{w: w, names: names, returns: returns}
			l.run(n, of)
		}})
	}
	for _, n := range []int{2, 10} {
		for _, names := range []int{1, 3} {
			add("before a worker runs", n, names)
			for _, x := range incidents {
				add("through "+x.name, n, names, x)
			}
		}
	}
	for i, x := range incidents {
		for _, y := range incidents[i:] {
			add("through "+x.name+" and "+y.name, 10, 3, x, y)
		}
	}
	return append(all,
		test{"signals to an entity", func(w *world) { (&line{w: w, names: 1, entity: true}).run(10, incidents[1:2]) }},
		test{"signals to an entity through an abandoned batch", func(w *world) {
			(&line{w: w, names: 1, entity: true, returns: true}).run(10, []incident{incidents[4]})
		}})
}

// line is a sequence of events from one sender to an instance, and the events that have been
// delivered.
type line struct {
	w         *world
	names     int // number of different event names
	entity    bool
	returns   bool // an incident returns messages to the storage
	sent, got []provider.TaskMessage
}

func (l *line) id() string {
	if l.entity {
		return entityID
	}
	return "a"
}

// run sends n events in parts, with an incident after each part but the last. Without incidents
// it starts the worker after all events are sent.
func (l *line) run(n int, of []incident) {
	w := l.w
	if !l.entity {
		w.create("a")
	}
	if len(of) > 0 {
		w.start()
		if !l.entity {
			w.next("a").finish()
		}
	}
	each := max(1, n/(2*len(of)+1))
	for _, x := range of {
		l.raise(each)
		x.happens(l)
	}
	l.raise(n - l.raised())
	if len(of) == 0 {
		w.start()
	}
	for len(l.got) < len(l.sent) {
		l.commit(l.next())
	}
	if l.returns && w.hub.Order != OrderAlways || len(of) > 0 && w.hub.Order == OrderWithinFetch {
		for _, m := range l.sent {
			if !containsMessage(l.got, m) {
				w.Errorf("%s was lost; got\n%s", fingerprint(m), fingerprints(l.got))
			}
		}
		return
	}
	w.equal("messages", l.got, l.sent)
}

// raised returns the number of events that were sent.
func (l *line) raised() (n int) {
	for _, m := range l.sent {
		if m.Event.Type() == history.TypeEventRaised {
			n++
		}
	}
	return n
}

func (l *line) raise(n int) {
	for range n {
		at := len(l.sent)
		l.send(raised(l.id(), fmt.Sprintf("Event%d", at%l.names), text(fmt.Sprintf(`{"op":"op","number":%d}`, at))))
	}
}

func (l *line) send(m provider.TaskMessage) {
	l.w.send(m)
	l.sent = append(l.sent, m)
}

func (l *line) next() *episode { return l.w.next(l.id()) }

// take records the messages that are delivered for the first time.
func (l *line) take(messages []provider.TaskMessage) {
	for _, m := range messages {
		if m.Event.Type() != history.TypeExecutionStarted && !containsMessage(l.got, m) {
			l.got = append(l.got, m)
		}
	}
}

// commit records the messages of an episode and commits it.
func (l *line) commit(e *episode) {
	l.take(e.fresh)
	if l.entity {
		e.setEntityState(fmt.Sprintf("after %d", len(l.got)), "state")
	}
	e.finish()
}

func (l *line) suspend() {
	l.send(to(l.id(), &history.ExecutionSuspended{Header: history.NewHeader(now()), Reason: text(fmt.Sprint(len(l.sent)))}))
	l.raise(1)
	l.commit(l.next())
	l.raise(1)
	l.send(to(l.id(), &history.ExecutionResumed{Header: history.NewHeader(now()), Reason: text(fmt.Sprint(len(l.sent)))}))
}

// hold sends events while a session has the instance.
func (l *line) hold() {
	e := l.next()
	l.raise(2)
	l.commit(e)
}

func (l *line) renew(keep bool) {
	e := l.next()
	l.raise(1)
	l.take(e.fresh)
	carried := e.fresh
	e.continueAsNew(fmt.Sprintf("generation after %d", len(l.sent)), nil)
	if keep {
		for _, m := range carried {
			e.decide(m.Event)
		}
	}
	e.finish()
}

func (l *line) abandon() {
	l.raise(1)
	l.next().abandon()
}

// releaseUncommitted sends events to a session and releases it without committing them.
func (l *line) releaseUncommitted() {
	e := l.next()
	l.take(e.fresh)
	e.commit()
	l.raise(2)
	e.more(l.w.hub.Patience)
	l.raise(1)
	e.release()
}

func (l *line) crash() {
	l.next()
	l.raise(1)
	l.w.kill()
}
