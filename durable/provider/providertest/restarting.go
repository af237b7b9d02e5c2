package providertest

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var emptyQuery = provider.Query{}

var restarting = area{"restarting", []test{
	{"all data is kept when the hub is reopened", running(allKept((*world).reopen))},
	{"all data is kept after a crash", running(allKept((*world).kill))},
	{"uncommitted messages are redelivered after a crash", running(handedOutAgain)},
	{"timers fire after a crash", running(timersKept)},
	{"a scheduled start is kept after a crash", running(scheduledKept)},
	{"the attempts of an activity are counted through crashes", running(attemptsKept)},
}}

// allKept returns a test that creates instances in all states, ends the process with again, and
// checks that all instances continue.
func allKept(again func(*world)) func(*world) {
	return func(w *world) {
		w.create("pending")
		e := w.next("pending")
		e.release()
		pending := e.item.Messages[0]

		w.create("done")
		w.nextOf("done").end(history.Completed, text("output")).custom(text(`"status"`)).finish()

		waiting := w.create("waiting")
		w.nextOf("waiting").schedule(0, "Activity", text(`"input"`)).raise(1, "waiting", "Event", text("1")).finish()

		continued := history.OrchestrationInstance{InstanceID: "continued", ExecutionID: "second"}
		w.create("continued")
		w.nextOf("continued").continueAsNew("second", text("2")).finish()
		done := w.state("done")

		again(w)
		w.equal("instances", w.listIDs(emptyQuery), []string{"continued", "done", "pending", "waiting"})
		w.equal("state of the instance that has ended", w.state("done"), done)
		w.equal("history of the one that continued", w.history("continued"), w.histories[continued])

		for _, id := range []string{"pending", "waiting"} {
			e := w.nextOf(id)
			switch id {
			case "pending":
				w.equal("messages", e.item.Messages, []provider.TaskMessage{pending})
			case "waiting":
				w.equal("type of the message", e.item.Messages[0].Event.Type(), history.TypeEventRaised)
			}
			e.finish()
		}
		a := w.nextActivity()
		w.equal("instance that waits", a.Instance, waiting)
		w.equal("input", a.Task.Input, text(`"input"`))
		w.complete(a, completed(0, text("result")))
		w.nextOf("waiting").end(history.Completed, nil).finish()
		w.equal("status", w.state("waiting").Status, history.Completed)
		w.send(raised("continued", "Event", nil))
		w.nextOf("continued").end(history.Completed, nil).finish()
	}
}

func handedOutAgain(w *world) {
	instance := w.begin("a")
	w.send(raised("a", "Event", text("1")))
	e := w.next("a")
	messages := e.item.Messages
	w.kill()
	e = w.next("a")
	w.equal("messages", e.item.Messages, messages)
	e.finish()
	w.equal("history", w.history("a"), w.histories[instance])
}

func timersKept(w *world) {
	w.create("a")
	e := w.next("a")
	for i := range 3 {
		e.timer(i, now().Add(time.Duration(i)*moment/2))
	}
	e.finish()
	w.kill()
	w.equal("number of timers that fired", len(w.firings("a", 3)), 3)
}

func scheduledKept(w *world) {
	start := started("a", "execution", nil)
	start.ScheduledStart = now().Add(moment)
	w.createAs(start)
	w.kill()
	e := w.next("a")
	if early := time.Until(start.ScheduledStart); early > 0 {
		w.Errorf("the instance was dispatched %v early", early)
	}
	e.finish()
}

func attemptsKept(w *world) {
	a := w.scheduled("a")
	for attempt := 2; attempt <= 3; attempt++ {
		w.kill()
		a = w.nextActivity()
		if a.Attempt < attempt {
			w.Errorf("%s", fmt.Sprintf("attempt is %d although the activity was dispatched %d times", a.Attempt, attempt))
		}
	}
	w.complete(a, completed(0, nil))
	w.next("a").finish()
}
