package providertest

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var continuing = area{"continuing as new", []test{
	{"the new history replaces the old one", running(newHistory)},
	{"completions for the old execution do not reach the new one", running(staleCompletions)},
	{"events reach the new execution", running(eventsAfterwards)},
	{"activities and timers of the new execution are delivered to it", running(workAfterwards)},
	{"an instance continues as new many times", running(manyGenerations)},
	{"the first creation time stays until a client starts the ID again", running(firstCreated)},
}}

func newHistory(w *world) {
	first := w.create("a")
	for i := range 5 { // makes the old history longer than the new one
		w.next("a").schedule(i, "Activity", nil).finish()
		w.send(raised("a", "Event", nil))
	}
	e := w.next("a").continueAsNew("second", text(`"second input"`)).custom(text(`"new"`))
	e.finish()
	second := history.OrchestrationInstance{InstanceID: "a", ExecutionID: "second"}
	if first == second {
		w.Fatal("both executions have the same ID")
	}
	w.equal("history", w.history("a"), w.histories[second])
	s := w.state("a")
	w.equal("instance", s.Instance, second)
	w.equal("input", s.Input, text(`"second input"`))
	w.equal("custom status", s.CustomStatus, text(`"new"`))
	w.equal("status", s.Status, history.Running)
	w.send(raised("a", "Event", nil))
	e = w.next("a")
	w.equal("instance of the work item", e.item.Instance, second)
	e.end(history.Completed, text("done")).finish()
	w.equal("history", w.history("a"), w.histories[second])
}

func firstCreated(w *world) {
	start := started("a", "first", nil)
	w.createAs(start)
	same := func(when string) {
		w.Helper()
		w.equal("time of the first start, "+when, w.state("a").FirstCreatedAt, start.Timestamp)
	}
	same("before it runs")
	w.next("a").finish()
	same("as it runs")
	w.send(raised("a", "Event", nil))
	w.next("a").continueAsNew("second", nil).finish()
	same("as it has continued")
	w.send(raised("a", "Event", nil))
	w.next("a").end(history.Failed, text("it broke")).finish()
	same("when it has ended")
	again := started("a", "third", nil)
	w.must("start it again", w.tryCreate(again, live))
	w.equal("time of the first start of another", w.state("a").FirstCreatedAt, again.Timestamp)
	w.next("a").end(history.Completed, nil).finish()
	w.equal("time of the first start when that has ended", w.state("a").FirstCreatedAt, again.Timestamp)
}

func staleCompletions(w *world) {
	first := w.create("a")
	w.next("a").schedule(0, "Activity", nil).timer(1, now().Add(moment/2)).finish()
	late := w.nextActivity()
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	for !slices.ContainsFunc(e.fresh, func(m provider.TaskMessage) bool { return m.Event.Type() == history.TypeEventRaised }) {
		e.finish() // on a slow machine the timer may be due before the event arrives
		e = w.next("a")
	}
	e.continueAsNew("second", nil).schedule(0, "Of the new execution", nil).timer(1, now().Add(time.Hour))
	e.finish()
	w.complete(late, completed(0, text(`"of the old execution"`)))
	until := time.Now().Add(moment)
	for time.Now().Before(until) { // until the timer of the old execution is due
		w.discardUntilQuiet(func(e *episode) {
			for _, m := range e.item.Messages {
				if m.Target != first {
					w.Errorf("%s was dispatched to the new execution", fingerprint(m))
				}
			}
		})
	}
	w.complete(w.nextActivity(), completed(0, text(`"of the new execution"`)))
	e = w.next("a")
	got, ok := e.item.Messages[0].Event.(*history.TaskCompleted)
	if !ok || *got.Result != `"of the new execution"` {
		w.Errorf("got %s, want the result of the new execution's activity", fingerprint(e.item.Messages[0]))
	}
	e.finish()
}

func eventsAfterwards(w *world) {
	w.create("a")
	e := w.next("a")
	early := raised("a", "before it continued", nil)
	w.send(early)
	e.continueAsNew("second", nil).finish()
	late := raised("a", "after it continued", nil)
	w.send(late)
	got := w.collect("a", 2)
	if !containsMessage(got, early) || !containsMessage(got, late) {
		w.Errorf("got\n%swant both events", fingerprints(got))
	}
}

func workAfterwards(w *world) {
	w.create("a")
	e := w.next("a").continueAsNew("second", nil)
	due := now().Add(moment / 2)
	e.schedule(0, "Activity", text("1")).timer(1, due).finish()
	a := w.nextActivity()
	w.equal("execution that waits for the activity", a.Instance.ExecutionID, "second")
	w.complete(a, completed(0, nil))
	got := w.collect("a", 2)
	kinds := map[history.EventType]bool{got[0].Event.Type(): true, got[1].Event.Type(): true}
	w.equal("messages", kinds, map[history.EventType]bool{history.TypeTaskCompleted: true, history.TypeTimerFired: true})
}

func manyGenerations(w *world) {
	w.create("a")
	names := []string{"one", "two", "three", "four", "five", "six"}
	for _, name := range names {
		w.next("a").continueAsNew(name, text(name)).finish()
		w.equal("execution", w.state("a").Instance.ExecutionID, name)
		w.send(raised("a", "Event", nil))
	}
	e := w.next("a").end(history.Completed, text("done"))
	e.finish()
	w.equal("history", w.history("a"), w.histories[history.OrchestrationInstance{InstanceID: "a", ExecutionID: "six"}])
	w.equal("input", w.state("a").Input, text("six"))
	w.equal("output", w.state("a").Output, text("done"))
}
