package providertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// scheduled starts an instance that waits for one activity, and returns the activity.
func (w *world) scheduled(id string) *provider.ActivityWorkItem {
	w.Helper()
	w.create(id)
	w.next(id).schedule(0, "Activity", text(`"input"`)).finish()
	return w.nextActivity()
}

// copyHub stops the hub, copies it and continues with the copy.
func (w *world) copyHub() provider.Totals {
	w.Helper()
	from, to := w.portable()
	w.stopIfRunning()
	totals := w.mustCopy(from, to)
	w.use(to.(provider.Provider))
	return totals
}

// fillAllStages creates instances in all stages of their lives, and stops the hub.
func (w *world) fillAllStages() {
	w.Helper()
	w.portable() // skips the test if the hub cannot be copied
	w.start()
	w.begin("event")
	w.send(raised("event", "Sent", text(`"before"`)))
	w.next("event").finish()
	w.begin("queued")
	w.send(raised("queued", "Work", nil))
	w.next("queued").schedule(0, "Activity", text(`"input"`)).finish()
	parent := w.create("parent")
	w.next("parent").child(0, childStart("child", "execution of child", parent, 0)).finish()
	w.next("child").finish()
	w.begin("suspended")
	w.send(to("suspended", &history.ExecutionSuspended{Header: history.NewHeader(now()), Reason: text("not now")}))
	w.next("suspended").finish()
	w.begin("generations")
	w.send(raised("generations", "Again", nil))
	w.next("generations").continueAsNew("second execution of generations", text(`"again"`)).finish()
	w.stop()
}

// mustNotChange discards all work items of an instance that has ended, as the engine does. It
// checks that the state and the history stay the same.
func (w *world) mustNotChange(id string, before *provider.InstanceState) {
	w.Helper()
	w.discardUntilQuiet(func(e *episode) {
		w.equal("instance that was dispatched", e.item.Instance.InstanceID, id)
	})
	w.quiet("its messages were dropped")
	w.equal("state", w.state(id), before)
	w.equal("history", w.history(id), w.histories[before.Instance])
}

// commitUntil commits episodes of an entity until m is delivered, and reports an error if that
// happens before due.
func (w *world) commitUntil(id string, m provider.TaskMessage, due time.Time) {
	w.Helper()
	for n, came := 0, false; !came; n++ {
		e := w.next(id)
		came = containsMessage(e.fresh, m)
		if early := time.Until(due); came && early > 0 {
			w.Errorf("the message was delivered %v early", early)
		}
		e.setEntityState(fmt.Sprintf("until %d", n), "state").finish()
	}
}

// begin starts an instance and commits its first episode.
func (w *world) begin(id string) history.OrchestrationInstance {
	w.Helper()
	instance := w.create(id)
	w.next(id).finish()
	return instance
}

// sendAgain sends a message a second time. The hub may deliver it twice.
func (w *world) sendAgain(m provider.TaskMessage) {
	w.Helper()
	w.mu.Lock()
	w.resent[fingerprint(m)] = true
	w.mu.Unlock()
	w.send(m)
}

// collect commits episodes of an instance until n different messages have arrived. It returns
// them in the order of arrival, without the start.
func (w *world) collect(id string, n int) []provider.TaskMessage {
	w.Helper()
	var all []provider.TaskMessage
	for len(all) < n {
		e := w.next(id)
		for _, m := range e.fresh {
			repeated := slices.ContainsFunc(all, func(o provider.TaskMessage) bool { return fingerprint(o) == fingerprint(m) })
			if m.Event.Type() != history.TypeExecutionStarted && !repeated {
				all = append(all, m)
			}
		}
		e.finish()
	}
	return all
}

// purgedLeftovers handles the work items of a purged instance. It discards those without a
// history. Others were loaded before the purge, and their commit must fail.
func (w *world) purgedLeftovers() {
	w.Helper()
	for {
		ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
		e := w.try(ctx)
		cancel()
		switch {
		case e == nil:
			return
		case len(e.item.History) == 0:
			e.discard()
		default:
			w.refused(e)
		}
	}
}

// failing starts an instance and lets it fail because its activity fails.
func (w *world) failing(id string) history.OrchestrationInstance {
	w.Helper()
	a := w.scheduled(id)
	w.complete(a, &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")})
	w.next(id).end(history.Failed, text("it broke")).finish()
	return a.Instance
}

// rewindPlan returns the rewind plan of an instance and applies it to the model.
func (w *world) rewindPlan(id string) *provider.RewindPlan {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	plan, err := provider.PlanRewind(ctx, id, "why", now(), w.p.History)
	w.must("PlanRewind", err)
	for _, x := range plan.Executions {
		w.histories[x.Instance] = x.Apply(w.histories[x.Instance])
	}
	return plan
}

// nextRewound returns the next work item of a rewound instance. It reports messages other than the
// GenericEvent of the rewind.
func (w *world) nextRewound(id string) *episode {
	w.Helper()
	e := w.next(id)
	for _, m := range e.item.Messages {
		if _, ok := m.Event.(*history.GenericEvent); !ok {
			w.Errorf("%q was dispatched with unexpected message %s", id, fingerprint(m))
		}
	}
	return e
}

// failFamily commits e, the failed end of a child, and then fails the parent.
func (w *world) failFamily(parent history.OrchestrationInstance, e *episode) {
	w.Helper()
	e.cp.Messages = append(e.cp.Messages, provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")},
		Target: parent,
	})
	e.finish()
	w.next(parent.InstanceID).end(history.Failed, text("its child broke")).finish()
}

// failingWithTimers lets an instance fail after one of its two timers has fired. The second
// timer must not be due before the rewind, also on a slow machine. Its delay is therefore 30
// times the time in which the first timer fired, at least 1/5 and at most 3/4 of hub.Patience.
func (w *world) failingWithTimers(e *episode) (end *episode) {
	w.Helper()
	id := e.item.Instance.InstanceID
	begun := time.Now()
	e.timer(0, now()).finish()
	w.firings(id, 1)
	delay := min(max(w.hub.Patience/5, 30*time.Since(begun)), w.hub.Patience*3/4)
	w.send(raised(id, "Event", nil))
	w.next(id).timer(1, now().Add(delay)).schedule(2, "Activity", nil).finish()
	w.complete(w.nextActivity(), &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 2, Reason: text("it broke")})
	return w.next(id).end(history.Failed, text("it broke"))
}

// waitsForTimer checks that only the unfired timer of a rewound instance fires, once.
func (w *world) waitsForTimer(id string) {
	w.Helper()
	w.nextRewound(id).schedule(2, "Activity", nil).finish()
	fired := w.firings(id, 1)[0]
	w.equal("timer that fired", fired.Event.(*history.TimerFired).TimerID, 1)
	w.equal("target", fired.Target, w.state(id).Instance)
	w.quiet("all its timers have fired")
}

// nextOf returns the next work item of an instance. It releases work items of other instances.
func (w *world) nextOf(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		e := w.try(ctx)
		switch {
		case e == nil:
			w.Fatalf("instance %q was not dispatched", id)
		case e.item.Instance.InstanceID == id:
			return e
		}
		e.release()
	}
}

// nextExcept returns the next work item of another execution than replaced. It releases work items
// of replaced: its messages can redispatch it until the provider notices the replacement.
func (w *world) nextExcept(replaced history.OrchestrationInstance) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		item, err := w.p.NextOrchestration(ctx)
		w.must("NextOrchestration", err)
		if item.Instance != replaced {
			return w.check(item)
		}
		w.must("Release", item.Session.Release(ctx))
	}
}

// race calls startAtOnce, where one start must succeed, and returns the first episode of its
// execution.
func (w *world) race(id, name string, others ...func()) *episode {
	w.Helper()
	winner := w.startAtOnce(id, name, others...)
	if winner < 0 {
		w.Fatal("all starts were refused; want one success")
	}
	e := w.next(id)
	w.isWinner(e, name, winner)
	return e
}

// isWinner checks that the work item and the instance's state belong to the start that won.
func (w *world) isWinner(e *episode, name string, winner int) {
	w.Helper()
	id := e.item.Instance.InstanceID
	want := history.OrchestrationInstance{InstanceID: id, ExecutionID: fmt.Sprintf("%s %d", name, winner)}
	w.equal("execution that was dispatched", e.item.Instance, want)
	w.equal("execution in the instance's state", w.state(id).Instance, want)
}

// firings commits episodes of an instance until n timers have fired. It reports timers that
// fire early.
func (w *world) firings(id string, n int) []provider.TaskMessage {
	w.Helper()
	var all []provider.TaskMessage
	for len(all) < n {
		e := w.next(id)
		for _, m := range e.fresh {
			fired := m.Event.(*history.TimerFired)
			if early := time.Until(fired.FireAt); early > 0 {
				w.Errorf("timer %d fired %v early", fired.TimerID, early)
			}
			if !containsMessage(all, m) {
				all = append(all, m)
			}
		}
		e.finish()
	}
	return all
}

func (w *world) isExact() bool {
	x, ok := w.p.(provider.ExactlyOnce)
	return ok && x.IsExactlyOnce()
}

// sendingEntity returns an episode of an entity whose uncommitted checkpoint sends a message, and
// that message.
func (w *world) sendingEntity() (e *episode, told provider.TaskMessage) {
	w.Helper()
	w.send(signal(entityID, "tell"))
	told = signal("@told@a", "told")
	return w.next(entityID).setEntityState("first", "state").addMessage(told), told
}

// abandonOften abandons an event repeatedly, until its next delivery is later than the suite
// waits.
func (w *world) abandonOften() (event provider.TaskMessage) {
	w.Helper()
	w.begin("a")
	event = raised("a", "Event", nil)
	w.send(event)
	e := w.next("a")
	abandon := func(cause error) {
		ctx, cancel := w.patient()
		defer cancel()
		w.must("Abandon", e.item.Session.Abandon(ctx, cause))
		e.release()
	}
	short := max(w.hub.AbandonDelay, w.hub.Quiet)
	for delay := short / 2; delay < 2*w.hub.Patience; delay *= 2 {
		abandon(&provider.RetryAtError{Cause: errAbandoned, At: time.Now().Add(short)})
		e = w.next("a")
	}
	abandon(errAbandoned)
	return event
}
