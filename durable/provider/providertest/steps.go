package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

var steps = area{"steps", []test{
	{"an instance with running steps is woken after a crash", running(wokenAfterCrash)},
	{"it is woken when its session ends", running(wokenAfterRelease)},
	{"it is woken after each crash until no step runs", running(wokenAgain)},
	{"its next generation is woken", running(wokenGeneration)},
	{"it receives messages beside, which are not delivered again", running(wokenBeside)},
	{"an instance without running steps is not woken", running(notWoken)},
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

func notWoken(w *world) {
	w.create("a")
	w.next("a").withSteps().commit().decide().finish()
	w.quiet("no step runs")
	w.kill()
	w.quiet("no step runs")
}
