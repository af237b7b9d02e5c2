package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var children = area{"starts of children", []test{
	{"a child with an unknown ID begins", running(newChild)},
	{"the start of a child with the ID of a running instance is delivered to that instance", running(childOfLive)},
	{"the messages of a checkpoint without events are sent", running(answered)},
	{"a child replaces an instance with its ID that has ended", running(childOfEnded)},
	{"a child replaces an instance with its ID that ends while the start waits", running(childOfEnding)},
	{"a child replaces an instance with its ID that ends in its first episode", running(childOfShort)},
	{"a redelivered start of a child begins no execution", running(childTwice)},
	{"the first creation time of a child stays until another child is started with its ID", running(childFirstCreated)},
}}

// childStart returns the start of a child that the parent's action created.
func childStart(id, executionID string, parent history.OrchestrationInstance, action int) provider.TaskMessage {
	start := started(id, executionID, text(`"of a child"`))
	start.Parent = &history.ParentInstance{Name: "Orchestrator", Instance: parent, TaskScheduleID: action}
	return provider.TaskMessage{Event: start, Target: start.Instance}
}

func newChild(w *world) {
	parent := w.create("parent")
	start := childStart("child", "execution of child", parent, 0)
	w.next("parent").child(0, start).finish()
	e := w.next("child")
	w.equal("instance of the work item", e.item.Instance, start.Target)
	w.equal("history of the work item", len(e.item.History), 0)
	w.equal("start", e.item.Messages[0].Event, start.Event)
	e.end(history.Completed, nil).finish()
	w.equal("history", w.history("child"), w.histories[start.Target])
}

func childOfLive(w *world) {
	child := w.begin("child")
	before := w.history("child")
	parent := w.create("parent")
	start := childStart("child", "another execution", parent, 0)
	w.next("parent").child(0, start).finish()

	e := w.next("child")
	w.equal("instance of the work item", e.item.Instance, child)
	w.equal("history of the work item", e.item.History, before)
	w.equal("messages of the work item", e.item.Messages, []provider.TaskMessage{start})
	e.discard()
	w.quiet("the start was consumed")
	w.equal("history", w.history("child"), before)
	s := w.state("child")
	w.equal("instance", s.Instance, child)
	w.equal("status", s.Status, history.Running)
	w.equal("input", s.Input, text(`"input"`))

	w.send(raised("child", "finish", nil))
	w.next("child").end(history.Completed, nil).finish()
	w.equal("history", w.history("child"), w.histories[child])
}

func answered(w *world) {
	w.begin("child")
	parent := w.create("parent")
	w.next("parent").child(0, childStart("child", "another execution", parent, 0)).finish()
	e := w.next("child")
	answer := provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceFailed{Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("refused")},
		Target: parent,
	}
	ctx, cancel := w.patient()
	defer cancel()
	w.must("commit a checkpoint without events", e.item.Session.Commit(ctx, &provider.Checkpoint{
		Instance: e.item.Instance, Messages: []provider.TaskMessage{answer},
	}))
	e.release()
	w.equal("messages to the parent", w.collect("parent", 1), []provider.TaskMessage{answer})
}

func childOfEnded(w *world) {
	w.create("child")
	w.next("child").end(history.Failed, text("old")).finish()
	parent := w.create("parent")
	start := childStart("child", "another execution", parent, 0)
	w.next("parent").child(0, start).finish()
	e := w.next("child")
	w.equal("instance of the work item", e.item.Instance, start.Target)
	w.equal("history of the work item", len(e.item.History), 0)
	e.finish()
	s := w.state("child")
	w.equal("instance", s.Instance, start.Target)
	w.equal("status", s.Status, history.Running)
	w.equal("input", s.Input, text(`"of a child"`))
	w.equal("history", w.history("child"), w.histories[start.Target])
}

func childOfEnding(w *world) {
	w.begin("child")
	w.send(raised("child", "finish", nil))
	endWhileStartWaits(w)
}

func childOfShort(w *world) {
	w.create("child")
	endWhileStartWaits(w)
}

// endWhileStartWaits ends the instance "child" after the start of another child with this ID is stored. The
// start replaces the instance.
func endWhileStartWaits(w *world) {
	w.Helper()
	ending := w.next("child")
	parent := w.create("parent")
	start := childStart("child", "another execution", parent, 0)
	w.next("parent").child(0, start).finish()
	ending.end(history.Completed, nil).finish()
	e := w.next("child")
	w.equal("instance of the work item", e.item.Instance, start.Target)
	w.equal("history of the work item", len(e.item.History), 0)
	w.equal("messages of the work item", e.item.Messages, []provider.TaskMessage{start})
	e.end(history.Completed, text("new")).finish()
	s := w.state("child")
	w.equal("instance", s.Instance, start.Target)
	w.equal("output", s.Output, text("new"))
	w.equal("history", w.history("child"), w.histories[start.Target])
}

func childTwice(w *world) {
	parent := w.create("parent")
	start := childStart("child", "execution of child", parent, 0)
	w.next("parent").child(0, start).finish()
	w.next("child").finish()
	w.sendAgain(start)
	w.discardUntilQuiet(func(e *episode) { w.equal("execution that gets the start", e.item.Instance, start.Target) })

	// The start is redelivered after the child has continued as new.
	w.send(raised("child", "go on", nil))
	e := w.next("child").continueAsNew("second", nil)
	e.cp.NewEvents[1].(*history.ExecutionStarted).Parent = start.Event.(*history.ExecutionStarted).Parent
	second := e.cp.Instance
	e.finish()
	w.sendAgain(start)
	w.discardUntilQuiet(func(e *episode) { w.equal("execution that gets the start", e.item.Instance, second) })

	// The start is redelivered after the child has ended.
	w.send(raised("child", "finish", nil))
	w.next("child").end(history.Completed, text("done")).finish()
	w.sendAgain(start)
	w.discardUntilQuiet(func(e *episode) { w.equal("execution that gets the start", e.item.Instance, second) })
	w.equal("output", w.state("child").Output, text("done"))
	w.equal("history", w.history("child"), w.histories[second])
}

func childFirstCreated(w *world) {
	parent := w.begin("parent")
	w.create("child")
	w.next("child").end(history.Failed, text("one that a client started")).finish()
	for i, execution := range []string{"first", "second", "third"} {
		id := "child" // replaces the previous child in the second round
		if i == 2 {
			id = "new child"
		}
		start := childStart(id, execution, parent, i)
		same := func(when string) {
			w.Helper()
			w.equal("time of the start of the "+execution+", "+when, w.state(id).FirstCreatedAt, start.Event.Head().Timestamp)
		}
		w.send(raised("parent", "go on", nil))
		w.next("parent").child(i, start).finish()
		w.next(id).finish()
		same("as it runs")
		w.send(raised(id, "go on", nil))
		w.next(id).continueAsNew(execution+", again", nil).finish()
		same("as it has continued")
		w.send(raised(id, "finish", nil))
		w.next(id).end(history.Completed, nil).finish()
		same("when it has ended")
	}
}
