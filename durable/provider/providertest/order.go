package providertest

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An Order is how far a hub keeps the order in which one sender sends to one instance.
type Order int

const (
	// OrderOfFetches means that what a worker fetches from the storage at once is in order.
	OrderOfFetches Order = iota
	// OrderUnlessReturned means that so is all else, but what was handed out and not committed, and
	// what a worker had that stopped: that may come after what was sent later.
	OrderUnlessReturned
	// OrderAlways means that there is no exception.
	OrderAlways
)

// What is sent is numbered. It comes in order whatever happens meanwhile, as far as the
// hub keeps it, and nothing is lost.
var order = area{"order", orderTests()}

// An incident is something that happens while events are sent, some of which wait.
type incident struct {
	name string
	// returns says that something goes back to the storage.
	returns bool
	happens func(*line)
}

var incidents = []incident{
	{"a suspension", false, (*line).suspend},
	{"a session that more comes to", false, (*line).hold},
	{"continuing as new with what came", false, func(l *line) { l.renew(true) }},
	{"continuing as new without what came", false, func(l *line) { l.renew(false) }},
	{"an abandoned episode", true, (*line).abandon},
	{"a session that is released with what came to it", true, (*line).putBack},
	{"a worker that stops", true, func(l *line) { l.w.reopen() }},
	{"a worker that dies", true, (*line).die},
}

func orderTests() (all []test) {
	add := func(name string, n, names int, of ...incident) {
		returns := false
		for _, x := range of {
			returns = returns || x.returns
		}
		all = append(all, test{fmt.Sprintf("%d events of %d names %s", n, names, name), func(w *world) {
			if returns && len(of) > 1 && w.hub.Order != OrderAlways {
				w.Skip("each of the incidents is tried by itself")
			}
			l := &line{w: w, names: names, returns: returns}
			l.run(n, of)
		}})
	}
	for _, n := range []int{2, 10} {
		for _, names := range []int{1, 3} {
			add("before a worker comes", n, names)
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

// A line is what one sender sends to an instance, and what that gets.
type line struct {
	w         *world
	names     int // of events
	entity    bool
	returns   bool // something goes back to the storage
	sent, got []provider.TaskMessage
}

func (l *line) id() string {
	if l.entity {
		return entityID
	}
	return "a"
}

// run sends n events: some, then the first incident happens, some, and so on. Without
// incidents no worker is there until all are sent.
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
	if l.returns && w.hub.Order != OrderAlways || len(of) > 0 && w.hub.Order == OrderOfFetches {
		for _, m := range l.sent {
			if !containsMessage(l.got, m) {
				w.Errorf("%s was lost; got\n%s", fingerprint(m), fingerprints(l.got))
			}
		}
		return
	}
	w.equal("messages", l.got, l.sent)
}

// raised returns how many events were sent.
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

// take notes what an episode got for the first time.
func (l *line) take(messages []provider.TaskMessage) {
	for _, m := range messages {
		if m.Event.Type() != history.TypeExecutionStarted && !containsMessage(l.got, m) {
			l.got = append(l.got, m)
		}
	}
}

// commit takes what an episode got.
func (l *line) commit(e *episode) {
	l.take(e.fresh)
	if l.entity {
		e.become(fmt.Sprintf("after %d", len(l.got)), "state")
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

// hold has events come while a session has the instance.
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

// putBack has a session get events that it does not commit.
func (l *line) putBack() {
	e := l.next()
	l.take(e.fresh)
	e.commit()
	l.raise(2)
	e.more(l.w.hub.Patience)
	l.raise(1)
	e.release()
}

func (l *line) die() {
	l.next()
	l.raise(1)
	l.w.kill()
}
