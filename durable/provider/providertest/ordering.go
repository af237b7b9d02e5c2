package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Every test checks that completions are not dispatched early. These tests send completions
// before the history has the event that scheduled the work.
var ordering = area{"completions", []test{
	{"a completion sent before the start waits for the event that schedules the work", running(beforeStart)},
	{"a completion sent during the episode that schedules the work waits for its commit", running(duringEpisode)},
	{"other messages are delivered while a completion waits for its event", running(passed)},
}}

func beforeStart(w *world) {
	instance := w.create("a")
	early := provider.TaskMessage{Event: completed(0, text("early")), Target: instance}
	w.send(early)
	w.next("a").schedule(0, "Activity", nil).finish()
	w.equal("messages", w.collect("a", 1), []provider.TaskMessage{early})
}

func duringEpisode(w *world) {
	instance := w.create("a")
	e := w.next("a").schedule(0, "Activity", nil)
	early := provider.TaskMessage{Event: completed(0, text("early")), Target: instance}
	w.send(early)
	e.finish()
	w.equal("messages", w.collect("a", 1), []provider.TaskMessage{early})
}

func passed(w *world) {
	instance := w.begin("a")
	early := provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceCompleted{Header: history.NewHeader(now()), TaskScheduledID: 5, Result: text("early")},
		Target: instance,
	}
	w.send(early)
	w.quiet("the history does not have event 5")
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	w.equal("number of messages", len(e.item.Messages), 1)
	e.decide(&history.SubOrchestrationInstanceCreated{Header: action(5), Name: "Child", InstanceID: "child"})
	e.finish()
	w.equal("messages", w.collect("a", 1), []provider.TaskMessage{early})
}
