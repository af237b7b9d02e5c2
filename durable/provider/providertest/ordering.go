package providertest

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// What is handed out is checked for this in every test; these send what would
// come too early.
var ordering = area{"completions", []test{
	{"a completion that is there before the start waits for its event", running(beforeStart)},
	{"a completion that comes during the episode that schedules it waits", running(duringEpisode)},
	{"a completion waits for its event while others pass it", running(passed)},
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
