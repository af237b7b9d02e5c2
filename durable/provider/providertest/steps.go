package providertest

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var steps = area{"steps", []test{
	{"an instance with running steps is woken after a crash", running(wokenAfterCrash)},
	{"it is woken when its session ends", running(wokenAfterRelease)},
	{"it is woken after each crash until no step runs", running(wokenAgain)},
	{"its next generation is woken", running(wokenGeneration)},
	{"it receives messages beside, which are not delivered again", running(wokenBeside)},
	{"an instance without running steps is not woken", running(notWoken)},
	{"messages arrive before the first checkpoint", running(arrivedBeforeCommit)},
	{"a start waits until no step runs, and messages arrive", running(arrivedBesideStart)},
}}

func wokenAfterCrash(w *world) {
	w.create("a")
	w.next("a").withSteps().commit()
	w.kill()
	w.woken("a").end(history.Completed, nil).finish()
	w.equal("status", w.state("a").Status, history.Completed)
	w.quiet("the instance has ended")
}

func wokenAfterRelease(w *world) {
	w.create("a")
	w.next("a").withSteps().finish()
	w.woken("a").end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

func wokenAgain(w *world) {
	w.create("a")
	e := w.next("a").withSteps().commit()
	for range 2 {
		e.decide(&history.TaskScheduled{Header: action(len(e.past)), Name: "Step"}).withSteps().commit()
		w.kill()
		e = w.woken("a")
	}
	e.withSteps().commit().decide().commit()
	w.kill()
	w.quiet("no step runs")
	w.send(raised("a", "Event", nil))
	w.next("a").end(history.Completed, nil).finish()
}

func wokenGeneration(w *world) {
	w.create("a")
	e := w.next("a").withSteps().commit()
	e.continueAsNew("second", nil).withSteps().commit()
	w.kill()
	e = w.woken("a")
	w.equal("execution", e.item.Instance.ExecutionID, "second")
	e.end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

func wokenBeside(w *world) {
	w.create("a")
	e := w.next("a").withSteps().commit()
	w.send(raised("a", "Event", text("1")))
	e.arrive(1)
	e.withSteps().commit()
	w.kill()
	w.woken("a").end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

func arrivedBeforeCommit(w *world) {
	w.create("a")
	e := w.next("a")
	first, second := raised("a", "Event", text("1")), raised("a", "Event", text("2"))
	w.send(first)
	e.arrive(2)
	w.send(second)
	e.arrive(3)
	w.send(to("a", &history.ExecutionTerminated{Header: history.NewHeader(now()), Reason: text("enough")}))
	e.arrive(4)
	w.equal("messages", e.fresh[1:3], []provider.TaskMessage{first, second})
	w.equal("last message", e.fresh[3].Event.Type(), history.TypeExecutionTerminated)
	e.end(history.Terminated, text("enough")).finish()
	w.equal("status", w.state("a").Status, history.Terminated)
	w.quiet("the instance has ended")
}

// arrivedBesideStart sends two starts to an instance with running steps. Next may deliver the start of
// the child, which the engine refuses, but not the end of the wait.
func arrivedBesideStart(w *world) {
	a, parent := w.create("a"), w.create("parent")
	own := started("a", a.ExecutionID, text(`"input"`))
	other := childStart("a", "another execution", parent, 0)
	e := w.nextOf("a").withSteps().commit()
	w.sendAgain(provider.TaskMessage{Event: own, Target: a})
	w.nextOf("parent").child(0, other).finish()
	refused := false
	for n := range 2 {
		event := raised("a", "Event", text(fmt.Sprint(n)))
		w.send(event)
		for !containsMessage(e.fresh, event) {
			e.arrive(len(e.fresh) + 1)
		}
		refused = refused || containsMessage(e.fresh, other)
		e.fresh = []provider.TaskMessage{event}
		e.withSteps().commit()
	}
	e.decide().finish()
	if !refused {
		e = w.next("a")
		w.equal("messages", e.fresh, []provider.TaskMessage{other})
		e.discard()
	}
	w.quiet("the starts were consumed")
}

func notWoken(w *world) {
	w.create("a")
	w.next("a").withSteps().commit().decide().finish()
	w.quiet("no step runs")
	w.kill()
	w.quiet("no step runs")
}
