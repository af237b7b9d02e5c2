package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Tests of what is asked of a hub to see whether it is ready.
var checking = area{"checking", []test{
	{"a hub can be checked before anybody has used it", checkedUnused},
	{"a check leaves no trace", running(checked)},
}}

func checkedUnused(w *world) {
	w.ready()
	w.equal("instances", w.listIDs(emptyQuery), []string(nil))
	w.start()
	w.create("a")
	w.next("a").end(history.Completed, nil).finish()
	w.reopen()
	w.ready()
}

func checked(w *world) {
	w.create("a")
	e := w.next("a")
	before := w.state("a")
	w.ready()
	w.equal("instances", w.listIDs(emptyQuery), []string{"a"})
	w.equal("state", w.state("a"), before)
	e.end(history.Completed, nil).finish()
	w.ready()
	w.equal("history", w.history("a"), w.histories[e.item.Instance])
}
