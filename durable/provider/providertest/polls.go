package providertest

import (
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var polls = area{"polls", []test{
	{"the wake-up of a poll is delivered when it is due", running(pollWhenDue)},
	{"it replaces the wake-up of running steps, also after a crash", running(pollAfterCrash)},
	{"it stays while the instance receives messages and runs steps", running(pollBesideMessages)},
	{"each of several wake-ups is delivered", running(pollAgain)},
	{"it is copied, and not early", copiedPoll},
	{"a copy does not wait for it", copiedPollLater},
	{"it has no effect after the end", running(pollAfterEnd)},
}}

func pollWhenDue(w *world) {
	w.create("a")
	w.next("a").withSteps().commit().rest(now().Add(moment), 3, 14)
	w.polled("a", 3, 14).end(history.Completed, nil).finish()
	w.equal("status", w.state("a").Status, history.Completed)
	w.quiet("the instance has ended")
}

func pollAfterCrash(w *world) {
	w.create("a")
	due := now().Add(w.hub.Quiet + 2*moment)
	w.next("a").withSteps().commit().rest(due, 0)
	w.kill()
	if until := time.Until(due); until > w.hub.Quiet {
		w.quiet("the poll is not due")
	}
	w.polled("a", 0).end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

func pollBesideMessages(w *world) {
	w.create("a")
	due := now().Add(2 * moment)
	w.next("a").withSteps().commit().rest(due, 0)
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	all := len(e.fresh)
	e.fresh = slices.DeleteFunc(e.fresh, func(m provider.TaskMessage) bool { _, ids := m.WokenPolls(); return ids != nil })
	w.equal("messages", describe(e.fresh), "[EventRaised]")
	if len(e.fresh) < all { // on a slow hub, the wake-up arrives with the event
		if early := time.Until(due); early > 0 {
			w.Errorf("the wake-up is %v early", early)
		}
	} else {
		e.withSteps().commit().decide().finish()
		e = w.polled("a", 0)
	}
	e.withSteps().commit()
	w.kill()
	w.woken("a").end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

func pollAgain(w *world) {
	w.create("a")
	w.next("a").withSteps().commit().rest(now(), 0)
	for range 3 {
		w.polled("a", 0).rest(now().Add(moment), 0)
	}
	w.polled("a", 0).end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

// copiedPoll accepts the wake-up of steps, too: a source may know only that polls are open.
func copiedPoll(w *world) {
	w.portable()
	w.start()
	w.create("a")
	due := now().Add(2 * moment)
	w.next("a").withSteps().commit().rest(due, 0)
	w.copyHub()
	e := w.next("a")
	for _, m := range e.fresh {
		if _, ids := m.WokenPolls(); ids != nil {
			if early := time.Until(due); early > 0 {
				w.Errorf("the wake-up is %v early", early)
			}
		} else if !m.WakesSteps() {
			w.Errorf("the messages are %s", describe(e.fresh))
		}
	}
	e.fresh = nil
	e.end(history.Completed, nil).finish()
}

func copiedPollLater(w *world) {
	w.portable()
	w.start()
	w.create("a")
	w.next("a").withSteps().commit().rest(now().Add(time.Hour), 0)
	w.copyHub()
	w.send(raised("a", "Event", nil))
	var messages []provider.TaskMessage
	for len(messages) == 0 {
		e := w.next("a")
		messages = slices.DeleteFunc(e.fresh, provider.TaskMessage.WakesSteps)
		e.discard()
	}
	w.equal("messages", describe(messages), "[EventRaised]")
}

func pollAfterEnd(w *world) {
	w.create("a")
	due := now().Add(moment)
	w.next("a").withSteps().commit().rest(due, 0)
	w.send(raised("a", "Event", nil))
	w.next("a").end(history.Completed, nil).finish()
	time.Sleep(time.Until(due))
	w.discardUntilQuiet(func(e *episode) { w.Errorf("an ended instance was dispatched with %s", describe(e.fresh)) })
}
