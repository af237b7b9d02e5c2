package providertest

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Tests of [provider.Purger] and [provider.Rewinder]. They are skipped if the provider does not
// implement them.
var optional = area{"purging and rewinding", []test{
	{"a purged instance is gone and can be started again", running(purged)},
	{"a purge does not affect other instances", running(purgedAlone)},
	{"an unknown instance cannot be purged", running(purgedUnknown)},
	{"messages to a purged instance do not create it again", running(purgedWithMessages)},
	{"a work item dispatched before a purge cannot be committed", running(purgedAtWork)},
	{"an instance that was started again since it was read is not purged", running(purgedSince)},
	{"an instance that was rewound since it was read is not purged", running(purgedSinceRewind)},
	{"messages that an entity received since it was read are not lost in a purge", running(purgedSinceSignal)},
	{"a rewound instance continues without its failure", running(rewound)},
	{"a rewind of an instance rewinds its failed child", running(rewoundWithChild)},
	{"a rewound instance keeps its pending timers", running(rewoundWithTimer)},
	{"a rewound child keeps its pending timers", running(rewoundWithTimerOfChild)},
	{"an instance that held locks until it ended cannot be rewound", running(rewoundWithoutLocks)},
	{"an unknown instance cannot be rewound", running(rewoundUnknown)},
	{"an instance that has not run cannot be rewound", running(rewoundUnstarted)},
}}

func purged(w *world) {
	w.createAs(started("a", "execution", large("input")))
	w.next("a").end(history.Completed, large("output")).finish()
	w.must("Purge", w.purge("a"))
	w.mustBeGone("a")
	w.equal("instances", w.listIDs(emptyQuery), []string(nil))

	second, err := w.startSecond("a", append(live, history.Completed))
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
	w.mustBeGone("a")
	w.complete(a, completed(0, nil))
	w.send(raised("a", "Event", nil))
	w.purgedLeftovers()
	w.mustBeGone("a")
}

func purgedAtWork(w *world) {
	a := w.scheduled("a")
	w.complete(a, completed(0, nil))
	e := w.next("a")
	w.must("Purge", w.purge("a"))
	w.mustBeGone("a")
	w.refused(e.end(history.Completed, nil))
	w.purgedLeftovers()
	w.mustBeGone("a")
}

func purgedSince(w *world) {
	w.create("a")
	w.next("a").end(history.Completed, text("first")).finish()
	seen := w.state("a")
	second, err := w.startSecond("a", live)
	w.must("start it again", err)
	w.mustRefusePurge("a", seen)
	w.mustRefusePurge("a", new(provider.InstanceState)) // a caller that saw no instance
	w.equal("status", w.state("a").Status, history.Pending)
	e := w.next("a")
	w.equal("instance of the work item", e.item.Instance, second)
	e.end(history.Completed, text("second")).finish()
	w.mustRefusePurge("a", seen)
	w.equal("output", w.state("a").Output, text("second"))
	w.equal("history", w.history("a"), w.histories[second])
	w.must("Purge", w.purgeSeen("a", w.state("a")))
	w.mustBeGone("a")
}

func purgedSinceRewind(w *world) {
	w.failing("a")
	seen := w.state("a")
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.mustRefusePurge("a", seen)
	w.nextRewound("a").end(history.Completed, nil).finish()
	w.mustRefusePurge("a", seen)
	w.equal("status", w.state("a").Status, history.Completed)
}

func purgedSinceSignal(w *world) {
	w.send(signal(entityID, "first"))
	w.next(entityID).setEntityState("first", "state 1").finish()
	seen := w.state(entityID)
	second := signal(entityID, "second")
	w.send(second)
	err := w.purgeSeen(entityID, seen)
	if err != nil && !errors.Is(err, provider.ErrInstanceChanged) {
		w.Errorf("Purge returned %v, want nil or %v", err, provider.ErrInstanceChanged)
	}
	e := w.next(entityID)
	w.equal("messages", e.item.Messages, []provider.TaskMessage{second})
	if err == nil && len(e.item.History) > 0 { // loaded before the purge
		w.refused(e.setEntityState("second", "state 2"))
		e = w.next(entityID)
		w.equal("messages", e.item.Messages, []provider.TaskMessage{second})
	}
	e.setEntityState("second", "state 2").finish()
	w.mustRefusePurge(entityID, seen)
	w.equal("state", w.state(entityID).Input, text("state 2"))
	w.must("Purge", w.purgeSeen(entityID, w.state(entityID)))
	w.mustBeGone(entityID)
}

func rewound(w *world) {
	instance := w.failing("a")
	born := w.state("a").FirstCreatedAt
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.equal("status", w.state("a").Status, history.Pending)
	w.equal("history", w.history("a"), w.histories[instance])

	w.nextRewound("a").schedule(0, "Activity", nil).finish() // as replay would
	w.equal("status after the rewound episode", w.state("a").Status, history.Running)
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
	e = w.nextRewound("child").end(history.Completed, nil)
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

func rewoundWithoutLocks(w *world) {
	instance := w.create("a")
	release := &history.EventSent{Header: action(0), InstanceID: entityID, Name: "release"}
	w.next("a").decide(release).end(history.Failed, text("it broke")).finish()
	if err := w.rewind("a", "why"); !errors.Is(err, provider.ErrLocksReleased) {
		w.Errorf("Rewind returned %v, want %v", err, provider.ErrLocksReleased)
	}
	w.equal("status", w.state("a").Status, history.Failed)
	w.equal("history", w.history("a"), w.histories[instance])
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
