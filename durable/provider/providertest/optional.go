package providertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Tests of what a provider may be able to do besides; those of what it does not
// offer are skipped.
var optional = area{"purging and rewinding", []test{
	{"a purged instance is gone and can be started again", running(purged)},
	{"what is purged leaves others alone", running(purgedAlone)},
	{"what is not there cannot be purged", running(purgedUnknown)},
	{"what was sent to a purged instance does not bring it back", running(purgedWithMessages)},
	{"what was handed out before a purge cannot be committed", running(purgedAtWork)},
	{"what began since an instance was seen is not purged", running(purgedSince)},
	{"what was rewound since it was seen is not purged", running(purgedSinceRewind)},
	{"what an entity got since it was seen is not purged", running(purgedSinceSignal)},
	{"a rewound instance goes on without its failure", running(rewound)},
	{"a rewound instance takes its failed child with it", running(rewoundWithChild)},
	{"a rewound instance keeps the timers that it waits for", running(rewoundWithTimer)},
	{"a child that is rewound keeps the timers that it waits for", running(rewoundWithTimerOfChild)},
	{"what has no history cannot be rewound", running(rewoundUnknown)},
}}

func (w *world) purge(id string) error {
	w.Helper()
	return w.purgeSeen(id, nil)
}

func (w *world) purgeSeen(id string, seen *provider.InstanceState) error {
	w.Helper()
	p, ok := w.p.(provider.Purger)
	if !ok {
		w.Skip("the provider does not purge")
	}
	ctx, cancel := w.patient()
	defer cancel()
	return p.Purge(ctx, id, seen)
}

func (w *world) rewind(id, reason string) error {
	w.Helper()
	p, ok := w.p.(provider.Rewinder)
	if !ok {
		w.Skip("the provider does not rewind")
	}
	ctx, cancel := w.patient()
	defer cancel()
	return p.Rewind(ctx, id, reason)
}

// gone checks that nothing is known of an instance.
func (w *world) gone(id string) {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	if s, err := w.p.Instance(ctx, id, provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		w.Errorf("Instance returned %+v, %v, want %v", s, err, provider.ErrInstanceNotFound)
	}
	w.equal("history", w.history(id), []history.Event(nil))
}

func purged(w *world) {
	w.createAs(started("a", "execution", large("input")))
	w.next("a").end(history.Completed, large("output")).finish()
	w.must("Purge", w.purge("a"))
	w.gone("a")
	w.equal("instances", w.listIDs(emptyQuery), []string(nil))

	second, err := w.tryAgain("a", append(live, history.Completed))
	w.must("start a purged instance", err)
	e := w.next("a")
	w.equal("instance of the work item", e.item.Instance, second)
	e.finish()
	w.equal("history", w.history("a"), w.histories[second])
}

func purgedAlone(w *world) {
	for _, id := range []string{"a", "aa", "b"} {
		w.create(id)
		w.next(id).end(history.Completed, text("output of "+id)).finish()
	}
	w.must("Purge", w.purge("a"))
	w.equal("instances", w.listIDs(emptyQuery), []string{"aa", "b"})
	for _, id := range []string{"aa", "b"} {
		s := w.state(id)
		w.equal("output", s.Output, text("output of "+id))
		w.equal("history", w.history(id), w.histories[s.Instance])
	}
}

func purgedUnknown(w *world) {
	if err := w.purge("nobody"); !errors.Is(err, provider.ErrInstanceNotFound) {
		w.Errorf("Purge returned %v, want %v", err, provider.ErrInstanceNotFound)
	}
}

func purgedWithMessages(w *world) {
	a := w.scheduled("a")
	w.send(raised("a", "Event", nil))
	w.must("Purge", w.purge("a"))
	w.gone("a")
	w.complete(a, completed(0, nil))
	w.send(raised("a", "Event", nil))
	w.purgedLeftovers()
	w.gone("a")
}

func purgedAtWork(w *world) {
	a := w.scheduled("a")
	w.complete(a, completed(0, nil))
	e := w.next("a")
	w.must("Purge", w.purge("a"))
	w.gone("a")
	w.refused(e.end(history.Completed, nil))
	w.purgedLeftovers()
	w.gone("a")
}

// spared checks that an instance is not purged that has changed.
func (w *world) spared(id string, seen *provider.InstanceState) {
	w.Helper()
	if err := w.purgeSeen(id, seen); !errors.Is(err, provider.ErrInstanceChanged) {
		w.Fatalf("Purge returned %v, want %v", err, provider.ErrInstanceChanged)
	}
}

func purgedSince(w *world) {
	w.create("a")
	w.next("a").end(history.Completed, text("first")).finish()
	seen := w.state("a")
	second, err := w.tryAgain("a", live)
	w.must("start it again", err)
	w.spared("a", seen)
	w.spared("a", new(provider.InstanceState)) // as of somebody who saw nothing
	w.equal("status", w.state("a").Status, history.Pending)
	e := w.next("a")
	w.equal("instance of the work item", e.item.Instance, second)
	e.end(history.Completed, text("second")).finish()
	w.spared("a", seen)
	w.equal("output", w.state("a").Output, text("second"))
	w.equal("history", w.history("a"), w.histories[second])
	w.must("Purge", w.purgeSeen("a", w.state("a")))
	w.gone("a")
}

func purgedSinceRewind(w *world) {
	w.failing("a")
	seen := w.state("a")
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.spared("a", seen)
	w.awoken("a").end(history.Completed, nil).finish()
	w.spared("a", seen)
	w.equal("status", w.state("a").Status, history.Completed)
}

func purgedSinceSignal(w *world) {
	w.send(signal(entityID, "first"))
	w.next(entityID).become("first", "state 1").finish()
	seen := w.state(entityID)
	second := signal(entityID, "second")
	w.send(second)
	err := w.purgeSeen(entityID, seen)
	if err != nil && !errors.Is(err, provider.ErrInstanceChanged) {
		w.Errorf("Purge returned %v, want that it is done or %v", err, provider.ErrInstanceChanged)
	}
	e := w.next(entityID)
	w.equal("messages", e.item.Messages, []provider.TaskMessage{second})
	if err == nil && len(e.item.History) > 0 { // loaded before the purge
		w.refused(e.become("second", "state 2"))
		e = w.next(entityID)
		w.equal("messages", e.item.Messages, []provider.TaskMessage{second})
	}
	e.become("second", "state 2").finish()
	w.spared(entityID, seen)
	w.equal("state", w.state(entityID).Input, text("state 2"))
	w.must("Purge", w.purgeSeen(entityID, w.state(entityID)))
	w.gone(entityID)
}

// purgedLeftovers takes what is handed out yet of a purged instance: without a
// history, or loaded before the purge, and then it cannot be committed.
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
			e.drop()
		default:
			w.refused(e)
		}
	}
}

// refused gives the session of an episode up, which could not be committed.
func (w *world) refused(e *episode) {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	if err := e.tryCommit(ctx); !errors.Is(err, provider.ErrSessionLost) {
		w.Errorf("commit of a purged instance returned %v, want %v", err, provider.ErrSessionLost)
	}
	e.release()
}

// failing starts an instance that fails when its activity does.
func (w *world) failing(id string) history.OrchestrationInstance {
	w.Helper()
	a := w.scheduled(id)
	w.complete(a, &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")})
	w.next(id).end(history.Failed, text("it broke")).finish()
	return a.Instance
}

// rewindPlan returns what package provider plans for an instance, and expects
// it to be carried out.
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

// awoken checks that an instance is handed out with what wakes a rewound one.
func (w *world) awoken(id string) *episode {
	w.Helper()
	e := w.next(id)
	for _, m := range e.item.Messages {
		if _, ok := m.Event.(*history.GenericEvent); !ok {
			w.Errorf("%q was handed out with %s", id, fingerprint(m))
		}
	}
	return e
}

func rewound(w *world) {
	instance := w.failing("a")
	born := w.state("a").FirstCreatedAt
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.equal("status", w.state("a").Status, history.Pending)
	w.equal("history", w.history("a"), w.histories[instance])

	w.awoken("a").schedule(0, "Activity", nil).finish() // as replay would
	w.equal("status of one that goes on", w.state("a").Status, history.Running)
	w.complete(w.nextActivity(), completed(0, text("it works")))
	w.next("a").end(history.Completed, text("done")).finish()
	s := w.state("a")
	w.equal("time of the first start", s.FirstCreatedAt, born)
	w.equal("status", s.Status, history.Completed)
	w.equal("output", s.Output, text("done"))
	w.equal("history", w.history("a"), w.histories[instance])
}

// failFamily ends a child with e, and its parent for it.
func (w *world) failFamily(parent history.OrchestrationInstance, e *episode) {
	w.Helper()
	e.cp.Messages = append(e.cp.Messages, provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")},
		Target: parent,
	})
	e.finish()
	w.next(parent.InstanceID).end(history.Failed, text("its child broke")).finish()
}

func rewoundWithChild(w *world) {
	parent := w.create("a")
	start := childStart("child", "execution of child", parent, 0)
	w.next("a").child(0, start).finish()
	w.next("child").schedule(0, "Activity", nil).finish()
	w.complete(w.nextActivity(), &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke")})
	e := w.next("child").end(history.Failed, text("it broke"))
	w.failFamily(parent, e)

	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	for id, instance := range map[string]history.OrchestrationInstance{"a": parent, "child": start.Target} {
		w.equal(fmt.Sprintf("status of %s", id), w.state(id).Status, history.Pending)
		w.equal(fmt.Sprintf("history of %s", id), w.history(id), w.histories[instance])
	}
	e = w.awoken("child").end(history.Completed, nil)
	result := provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceCompleted{Header: history.NewHeader(now()), TaskScheduledID: 0},
		Target: parent,
	}
	e.cp.Messages = append(e.cp.Messages, result)
	e.finish()
	w.equal("messages to the parent", w.next("a").item.Messages, []provider.TaskMessage{result})
}

// failingWithTimers has an instance fail, when its activity does, that waits for a
// timer, and has had another one fire. The first must not be due before the instance
// was rewound, however long the machine stalls.
func (w *world) failingWithTimers(e *episode) (end *episode) {
	w.Helper()
	id := e.item.Instance.InstanceID
	e.timer(0, now()).timer(1, now().Add(w.hub.Patience/2)).finish()
	w.firings(id, 1)
	w.send(raised(id, "Event", nil))
	w.next(id).schedule(2, "Activity", nil).finish()
	w.complete(w.nextActivity(), &history.TaskFailed{Header: history.NewHeader(now()), TaskScheduledID: 2, Reason: text("it broke")})
	return w.next(id).end(history.Failed, text("it broke"))
}

// waitsForTimer checks that of a rewound instance's timers the one fires, once,
// that did not before.
func (w *world) waitsForTimer(id string) {
	w.Helper()
	w.awoken(id).schedule(2, "Activity", nil).finish()
	fired := w.firings(id, 1)[0]
	w.equal("timer that fired", fired.Event.(*history.TimerFired).TimerID, 1)
	w.equal("target", fired.Target, w.state(id).Instance)
	w.quiet("all its timers have fired")
}

func rewoundWithTimer(w *world) {
	w.create("a")
	w.failingWithTimers(w.next("a")).finish()
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.waitsForTimer("a")
}

func rewoundWithTimerOfChild(w *world) {
	parent := w.create("a")
	w.next("a").child(0, childStart("child", "execution of child", parent, 0)).finish()
	e := w.failingWithTimers(w.next("child"))
	w.failFamily(parent, e)
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.waitsForTimer("child")
}

func rewoundUnknown(w *world) {
	if err := w.rewind("nobody", "why"); !errors.Is(err, provider.ErrInstanceNotFound) {
		w.Errorf("Rewind returned %v, want %v", err, provider.ErrInstanceNotFound)
	}
}
