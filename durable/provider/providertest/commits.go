package providertest

import (
	"context"
	"errors"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var commits = area{"commits", []test{
	{"events are appended to the history as they are", running(appended)},
	{"nothing of a checkpoint is seen before it is committed", running(nothingBefore)},
	{"all of a checkpoint is there once it is committed", running(allTogether)},
	{"messages go to other instances and to the same", running(messagesSent)},
	{"a child starts as its parent says", running(childStarts)},
	{"an empty checkpoint takes the messages and leaves the rest", running(emptyCheckpoint)},
	{"a commit whose context has ended counts as a whole or not at all", running(cancelledCommit)},
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
	w.next("a").drop()
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
	// It may have been written all the same; then nobody needs the messages, and
	// the provider may have deleted them.
	if got := w.history("a"); len(got) > 0 {
		w.equal("history", got, cp.NewEvents)
		w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
		return
	}
	w.noActivity("its checkpoint did not count")
	w.next("a").schedule(0, "Activity", nil).finish()
	w.equal("history", w.history("a"), w.histories[instance])
	w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
	w.noActivity("it was scheduled once")
}

// lostSession keeps a work item until the worker has given up waiting for it,
// and another has taken the instance over and got further.
func lostSession(w *world) {
	if w.hub.Reopen == nil {
		w.Skip("the hub cannot be opened again")
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
			w.Fatal("the instance was not handed out to the other worker")
		}
		e.schedule(0, "Activity", nil).finish()
	}
	late.schedule(0, "Of the lost session", nil).raise(1, "b", "of the lost session", nil).custom(text(`"lost"`))
	if err := late.item.Session.Commit(ctx, late.cp); !errors.Is(err, provider.ErrSessionLost) {
		w.Errorf("Commit returned %v, want %v", err, provider.ErrSessionLost)
	}
	_ = late.item.Session.Abandon(ctx, errAbandoned) // of a session that is lost: any answer will do
	_ = late.item.Session.Release(ctx)
	w.equal("history", w.history("a"), w.histories[instance])
	w.equal("custom status", w.state("a").CustomStatus, (*string)(nil))
	w.equal("name of the activity", w.nextActivity().Task.Name, "Activity")
	w.idle(func(e *episode) {
		for _, m := range e.item.Messages {
			if _, ok := m.Event.(*history.EventRaised); ok {
				w.Errorf("%s of the lost session was handed out", fingerprint(m))
			}
		}
	})
}
