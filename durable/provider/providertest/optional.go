package providertest

import (
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
	{"what was only started cannot be rewound", running(rewoundUnstarted)},
}}

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

func rewoundUnstarted(w *world) {
	w.create("a")
	err := w.rewind("a", "why")
	if !errors.Is(err, provider.ErrInstanceNotFound) && !errors.Is(err, provider.ErrInstanceChanged) {
		w.Errorf("Rewind returned %v, want %v or %v", err, provider.ErrInstanceNotFound, provider.ErrInstanceChanged)
	}
	w.next("a").end(history.Completed, nil).finish()
	w.equal("status", w.state("a").Status, history.Completed)
}
