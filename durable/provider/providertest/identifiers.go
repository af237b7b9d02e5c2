package providertest

import (
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/hostile"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var identifiers = area{"odd instance IDs", []test{
	{"instances with unusual IDs run and are listed", running(oddIDs)},
	{"IDs that differ in case or blanks are different instances", running(alikeIDs)},
	{"IDs with a common prefix are different instances", running(prefixIDs)},
	{"IDs that resemble each other are different instances, also for a purge", running(resemblingIDs)},
}}

var odd = []string{
	"a/b", `a\b`, "a#b?c", "a%2Fb", "%", "it's", `"quoted"`, "tab\tnewline\n", "ünïcode 世界 😀", "e\u0301", " ", ".", "..",
	"@counter@key", "a:0", "a$b^c", "a''b", "{id}", "a&b=c+d,e;f", strings.Repeat("x", 256), strings.Repeat("ü", 100),
}

func oddIDs(w *world) {
	for _, id := range odd {
		instance := w.create(id)
		w.next(id).schedule(0, "Activity", nil).raise(1, id, "Event", nil).finish()
		a := w.nextActivity()
		w.equal("instance that waits", a.Instance, instance)
		w.complete(a, completed(0, nil))
		w.collect(id, 2)
		w.send(raised(id, "finish", nil))
		w.next(id).end(history.Completed, text("done")).finish()
		s := w.state(id)
		w.equal("instance", s.Instance, instance)
		w.equal("status", s.Status, history.Completed)
		w.equal("history", w.history(id), w.histories[instance])
	}
	found := make(map[string]bool)
	for _, s := range w.list(provider.Query{}) {
		found[s.Instance.InstanceID] = true
	}
	for _, id := range odd {
		if !found[id] {
			w.Errorf("%q is not listed", id)
		}
	}
	w.equal("number of instances", len(found), len(odd))
}

func alikeIDs(w *world) {
	alike := []string{"id", "ID", "Id", "id ", " id"}
	for _, id := range alike {
		w.create(id)
		w.next(id).end(history.Completed, text("output of "+id)).finish()
	}
	for _, id := range alike {
		w.equal("output", w.state(id).Output, text("output of "+id))
	}
}

func prefixIDs(w *world) {
	for _, id := range []string{"a", "ab", "a\x7f", "a0"} {
		instance := w.begin(id)
		w.equal("history", w.history(id), w.histories[instance])
	}
	w.send(raised("a", "finish", nil))
	w.next("a").end(history.Completed, nil).finish()
	w.equal("status", w.state("ab").Status, history.Running)
	if _, err := w.startSecond("a", live); err != nil {
		w.Errorf("start a again: %v", err)
	}
	w.equal("length of ab's history", len(w.history("ab")), 3)
	w.next("a").finish()
}

// resemblingIDs starts instances whose IDs resemble another one, with inputs and outputs that some
// hubs store in blobs. It purges that instance, and checks that all others are complete.
func resemblingIDs(w *world) {
	const victim = "order-1"
	ids := []string{victim, "order-1/message-1", "order-1/history-1", "order-1/m"}
	for i, id := range hostile.Names(victim) {
		if !strings.ContainsRune(id, '\\') && i%3 == 0 { // blobs of IDs with a backslash are not purged
			ids = append(ids, id)
		}
	}
	long := func(id, what string) *string {
		return text(`"` + strings.Repeat(strings.ReplaceAll(what+id, `"`, "'"), 70_000/len(what+id)) + `"`)
	}
	for _, id := range ids {
		start := started(id, "execution of "+id, long(id, "input"))
		w.createAs(start)
		w.next(id).end(history.Completed, long(id, "output")).finish()
	}
	w.must("Purge", w.purge(victim))
	w.mustBeGone(victim)
	for _, id := range ids[1:] {
		s := w.state(id)
		w.equal("input of "+id, s.Input, long(id, "input"))
		w.equal("output of "+id, s.Output, long(id, "output"))
		w.equal("history of "+id, w.history(id), w.histories[s.Instance])
	}
	w.equal("number of instances", len(w.list(provider.Query{})), len(ids)-1)
}
