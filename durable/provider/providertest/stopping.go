package providertest

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

var stopping = area{"stopping", []test{
	{"Run returns nil when its context ends", running(runReturns)},
	{"Run waits for dispatched instances", running(runWaits)},
	{"Run waits for dispatched activities", running(runWaitsForActivity)},
	{"Run waits at most for the drain timeout", running(runGivesUp)},
	{"no work is dispatched after Run's context has ended", running(noMoreWork)},
	{"Next returns no messages when Run's context ends", running(nextEnds)},
	{"clients work without Run", clientOnly},
}}

func runReturns(w *world) {
	w.begin("a")
	w.stop()
}

func runWaits(w *world) {
	instance := w.create("a")
	e := w.next("a")
	w.haltInFlight()
	w.mustKeepRunning("an instance is in flight")
	e.finish()
	w.awaitStop()
	w.equal("history", w.history("a"), w.histories[instance])
}

func runWaitsForActivity(w *world) {
	a := w.scheduled("a")
	w.haltInFlight()
	w.mustKeepRunning("an activity is in flight")
	w.complete(a, completed(0, text("result")))
	w.awaitStop()
	w.reopen()
	e := w.next("a")
	w.equal("type of the message", e.item.Messages[0].Event.Type(), history.TypeTaskCompleted)
	e.finish()
	w.noActivity("it was completed")
}

func runGivesUp(w *world) {
	if w.hub.DrainTimeout == 0 {
		w.Skip("Hub.DrainTimeout is 0")
	}
	w.create("a")
	w.next("a")
	from := time.Now()
	w.stop()
	if took := time.Since(from); took > w.hub.DrainTimeout+w.hub.Patience/2 {
		w.Errorf("Run took %v to return, want about %v", took, w.hub.DrainTimeout)
	}
}

func noMoreWork(w *world) {
	e := func() *episode { w.create("held"); return w.next("held") }() // keeps Run from returning
	w.haltInFlight()
	time.Sleep(w.hub.Quiet / 2) // gives Run time to notice
	w.create("a")
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
	defer cancel()
	if item, err := w.p.NextOrchestration(ctx); err == nil {
		w.Errorf("instance %q was dispatched", item.Instance.InstanceID)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("NextOrchestration returned %v, want %v", err, context.DeadlineExceeded)
	}
	e.finish()
	w.awaitStop()
	w.reopen()
	w.next("a").finish()
}

func nextEnds(w *world) {
	w.create("a")
	e := w.next("a").commit()
	time.AfterFunc(w.hub.Quiet/4, w.halt)
	from := time.Now()
	if got := e.more(w.hub.Patience); len(got) > 0 {
		w.Errorf("Next returned %s, want none", describe(got))
	}
	if took := time.Since(from); took > w.hub.Patience/2 {
		w.Errorf("Next took %v to return after Run's context had ended", took)
	}
	e.release()
	w.awaitStop()
}

func clientOnly(w *world) {
	instance := w.create("a")
	w.send(raised("a", "Event", nil))
	w.equal("status", w.state("a").Status, history.Pending)
	w.equal("instance", w.state("a").Instance, instance)
	w.equal("instances", len(w.list(emptyQuery)), 1)
	w.start()
	w.equal("number of messages", len(w.collect("a", 1)), 1)
}
