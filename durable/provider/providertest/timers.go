package providertest

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var timers = area{"timers", []test{
	{"a timer is not dispatched early", running(notEarly)},
	{"an overdue timer is dispatched immediately", running(pastDue)},
	{"a timer is dispatched as it was created", running(asCreated)},
	{"many timers are dispatched at their due times", running(manyTimers)},
	{"a distant timer does not delay other messages", running(distantTimer)},
	{"a timer that is due after the end has no effect", running(timerAfterEnd)},
}}

func notEarly(w *world) {
	w.create("a")
	w.next("a").timer(0, now().Add(moment)).finish()
	w.firings("a", 1)
	w.quiet("its timer has fired")
}

func pastDue(w *world) {
	w.create("a")
	w.next("a").timer(0, now().Add(-time.Hour)).timer(1, now()).finish()
	w.firings("a", 2)
}

func asCreated(w *world) {
	instance := w.create("a")
	e := w.next("a").timer(3, now())
	want := e.cp.Timers[0]
	e.finish()
	w.equal("messages", w.firings("a", 1), []provider.TaskMessage{want})
	w.equal("target", want.Target, instance)
}

func manyTimers(w *world) {
	const n = 20
	w.create("a")
	e := w.next("a")
	from := now()
	for i := range n {
		e.timer(i, from.Add(time.Duration(i*7%n)*moment/n)) // not in the order of their due times
	}
	e.finish()
	seen := make(map[string]bool)
	for _, m := range w.firings("a", n) {
		seen[fmt.Sprint(m.Event.(*history.TimerFired).TimerID)] = true
	}
	w.equal("number of timers that fired", len(seen), n)
}

func distantTimer(w *world) {
	w.create("a")
	w.next("a").timer(0, now().Add(3*24*time.Hour)).finish()
	w.send(raised("a", "Event", nil))
	w.next("a").timer(1, now()).finish()
	w.equal("number of timers that fired", len(w.firings("a", 1)), 1)
	w.send(raised("a", "Event", nil))
	w.next("a").end(history.Completed, nil).finish()
}

func timerAfterEnd(w *world) {
	w.create("a")
	due := now().Add(moment)
	w.next("a").timer(0, due).end(history.Completed, text("done")).finish()
	for time.Now().Before(due.Add(w.hub.Quiet)) {
		w.discardUntilQuiet(func(*episode) {}) // the provider may also dispatch the timer, for the engine to discard
	}
	w.equal("status", w.state("a").Status, history.Completed)
	w.equal("output", w.state("a").Output, text("done"))
}
