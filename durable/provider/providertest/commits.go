package providertest

import (
	"context"
	"errors"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var commits = area{"commits", []test{
	{"events are appended to the history unchanged", running(appended)},
	{"a checkpoint has no visible effect before its commit", running(nothingBefore)},
	{"a committed checkpoint is completely visible", running(allTogether)},
	{"messages reach other instances and the sender itself", running(messagesSent)},
	{"a child is started as its parent specified", running(childStarts)},
	{"an empty checkpoint deletes the messages and changes nothing else", running(emptyCheckpoint)},
	{"a commit whose context has ended takes effect completely or not at all", running(cancelledCommit)},
	{"the checkpoint of a lost session is refused and has no effect", running(lostSession)},
}}

func appended(w *world) {
	instance := w.create("a")
	e := w.next("a")
	e.decide(
		&history.TaskScheduled{Header: action(0), Name: "Activity", Version: "v", Tags: map[string]string{"a": "b"}},
		&history.TimerCreated{Header: action(1), FireAt: now()},
		&history.SubOrchestrationInstanceCreated{Header: action(2), Name: "Child", Version: "v", InstanceID: "c", Tags: map[string]string{"x": ""}},
		&history.EventSent{Header: action(3), InstanceID: "b", Name: "Event", Input: text("")},
		&history.EventSent{Header: action(4), InstanceID: "b", Name: "Event"},
	)
	e.finish()
	w.equal("history after one episode", w.history("a"), w.histories[instance])

	for i := range 3 {
		w.send(raised("a", "Event", text(`"more"`)))
		e := w.next("a")
		if i == 2 {
			e.end(history.Failed, text("reason"))
			failed := e.cp.NewEvents[len(e.cp.NewEvents)-1].(*history.ExecutionCompleted)
			failed.Failure = &history.FailureDetails{ErrorType: "T", ErrorMessage: "m", InnerFailure: &history.FailureDetails{ErrorType: "I", ErrorMessage: "n"}}
		}
		e.finish()
		w.equal("history", w.history("a"), w.histories[instance])
	}
}

func nothingBefore(w *world) {
	instance := w.begin("a")
	w.send(raised("a", "Event", nil))
	e := w.next("a").schedule(0, "Activity", nil).timer(1, now()).raise(2, "b", "Event", nil).custom(text(`"new"`))
	w.equal("history", w.history("a"), w.histories[instance])
	w.equal("custom status", w.state("a").CustomStatus, (*string)(nil))
	w.noActivity("it was not committed")
	w.quiet("nothing was committed")
	e.abandon()
	w.equal("history", w.history("a"), w.histories[instance])
	w.noActivity("its checkpoint was abandoned")
}

func allTogether(w *world) {
	w.begin("a")
	w.begin("b")
	w.send(raised("a", "Event", nil))
	w.next("a").schedule(0, "First", text("1")).schedule(1, "Second", nil).raise(2, "b", "Event", text(`"e"`)).custom(text(`"new"`)).finish()
	w.equal("custom status", w.state("a").CustomStatus, text(`"new"`))
	names := map[string]bool{w.nextActivity().Task.Name: true, w.nextActivity().Task.Name: true}
	w.equal("activities", names, map[string]bool{"First": true, "Second": true})
	e := w.next("b")
	if got, ok := e.item.Messages[0].Event.(*history.EventRaised); !ok || got.Name != "Event" {
		w.Errorf("got %s, want the event", describe(e.item.Messages))
	}
	e.finish()
}

func messagesSent(w *world) {
	w.begin("a")
	w.begin("b")
	w.send(raised("a", "Event", nil))
	w.next("a").raise(0, "b", "to another", text("1")).raise(1, "a", "to itself", text("2")).finish()
	got := make(map[string]string)
	ctx, cancel := w.patient()
	defer cancel()
	for range 2 {
		e := w.try(ctx)
		if e == nil {
			w.Fatalf("only %v arrived", got)
		}
		for _, m := range e.item.Messages {
			event := m.Event.(*history.EventRaised)
			got[e.item.Instance.InstanceID] = event.Name + " " + *event.Input
		}
		e.finish()
	}
	w.equal("events", got, map[string]string{"a": "to itself 2", "b": "to another 1"})
}

func childStarts(w *world) {
	parent := w.create("a")
	e := w.next("a")
	start := started("child of a", "execution of the child", text(`"for the child"`))
	start.Parent = &history.ParentInstance{Name: "Orchestrator", Version: "v", Instance: parent, TaskScheduleID: 0}
	start.Tags = map[string]string{"from": "parent"}
	msg := provider.TaskMessage{Event: start, Target: start.Instance, Tags: map[string]string{"of": "parent"}}
	e.decide(&history.SubOrchestrationInstanceCreated{Header: action(0), Name: "Orchestrator", InstanceID: "child of a"})
	e.cp.Messages = append(e.cp.Messages, msg)
	e.finish()

	child := w.next("child of a")
	w.equal("instance", child.item.Instance, start.Instance)
	w.equal("messages", child.item.Messages, []provider.TaskMessage{msg})
	child.end(history.Completed, text(`"result"`))
	result := &history.SubOrchestrationInstanceCompleted{Header: history.NewHeader(now()), TaskScheduledID: 0, Result: text(`"result"`)}
	child.cp.Messages = append(child.cp.Messages, provider.TaskMessage{Event: result, Target: parent})
	child.finish()
	w.equal("status of the child", w.state("child of a").Status, history.Completed)

	e = w.next("a")
	w.equal("messages for the parent", e.item.Messages, []provider.TaskMessage{{Event: result, Target: parent}})
	e.finish()
}

func emptyCheckpoint(w *world) {
	w.create("a")
	w.next("a").custom(text(`"status"`)).finish()
	before, past := w.state("a"), w.history("a")
	w.send(raised("a", "Event", nil))
	w.next("a").discard()
	w.quiet("its message was dropped")
	after := w.state("a")
	w.equal("history", w.history("a"), past)
	w.equal("custom status", after.CustomStatus, before.CustomStatus)
	w.equal("status", after.Status, before.Status)
	w.send(raised("a", "Event", nil))
	w.next("a").finish()
}

func cancelledCommit(w *world) {
	instance := w.create("a")
	e := w.next("a").schedule(0, "Activity", nil)
	ended, cancel := context.WithCancel(w.Context())
	cancel()
	if err := e.tryCommit(ended); err == nil {
		e.release()
		w.equal("history", w.history("a"), w.histories[instance])
		w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
		return
	}
	cp := e.cp
	e.abandon()
	// The commit may still have been written. Then the messages have been consumed, and the
	// provider may have deleted them.
	if got := w.history("a"); len(got) > 0 {
		w.equal("history", got, cp.NewEvents)
		w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
		return
	}
	w.noActivity("its checkpoint was not committed")
	w.next("a").schedule(0, "Activity", nil).finish()
	w.equal("history", w.history("a"), w.histories[instance])
	w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
	w.noActivity("it was scheduled once")
}

// lostSession holds a work item until its worker's drain timeout ends, another worker has taken
// over the instance, and that worker has committed an episode.
func lostSession(w *world) {
	if w.hub.Reopen == nil {
		w.Skip("Hub.Reopen is nil")
	}
	instance := w.create("a")
	w.create("b")
	ctx, cancel := w.patient()
	defer cancel()
	late := w.try(ctx)
	if late.item.Instance.InstanceID == "b" {
		late.finish()
		late = w.next("a")
	}
	w.reopen()
	for w.histories[instance] == nil {
		e := w.try(ctx)
		if e == nil {
			w.Fatal("the instance was not dispatched to the other worker")
		}
		e.schedule(0, "Activity", nil).finish()
	}
	late.schedule(0, "Of the lost session", nil).raise(1, "b", "of the lost session", nil).custom(text(`"lost"`))
	if err := late.item.Session.Commit(ctx, late.cp); !errors.Is(err, provider.ErrSessionLost) {
		w.Errorf("Commit returned %v, want %v", err, provider.ErrSessionLost)
	}
	_ = late.item.Session.Abandon(ctx, errAbandoned) // the session is lost; any result is acceptable
	_ = late.item.Session.Release(ctx)
	w.equal("history", w.history("a"), w.histories[instance])
	w.equal("custom status", w.state("a").CustomStatus, (*string)(nil))
	w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
	w.discardUntilQuiet(func(e *episode) {
		for _, m := range e.item.Messages {
			if _, ok := m.Event.(*history.EventRaised); ok {
				w.Errorf("%s of the lost session was dispatched", fingerprint(m))
			}
		}
	})
}
