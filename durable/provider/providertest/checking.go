package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Tests of [provider.Checker].
var checking = area{"checking", []test{
	{"a hub can be checked before its first use", checkedUnused},
	{"a check leaves no trace", running(checked)},
}}

func checkedUnused(w *world) {
	w.mustBeReady()
	w.equal("instances", w.listIDs(emptyQuery), []string(nil))
	w.start()
	w.create("a")
	w.next("a").end(history.Completed, nil).finish()
	w.reopen()
	w.mustBeReady()
}

func checked(w *world) {
	w.create("a")
	e := w.next("a")
	before := w.state("a")
	w.mustBeReady()
	w.equal("instances", w.listIDs(emptyQuery), []string{"a"})
	w.equal("state", w.state("a"), before)
	e.end(history.Completed, nil).finish()
	w.mustBeReady()
	w.equal("history", w.history("a"), w.histories[e.item.Instance])
}
