package providertest

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var endings = area{"endings", []test{
	{"later messages do not change an instance that has ended", running(leftAlone)},
	{"messages that arrive during the last episode have no effect", running(duringLast)},
	{"messages for an ended execution do not reach its successor", running(successor)},
	{"Follow returns the final state of an instance", running(followed)},
}}

func leftAlone(w *world) {
	for _, status := range []history.RuntimeStatus{history.Completed, history.Failed, history.Terminated} {
		id := status.String()
		instance := w.create(id)
		w.next(id).end(status, text("output")).finish()
		before := w.state(id)
		w.send(raised(id, "Event", nil))
		w.send(provider.TaskMessage{Event: &history.EventRaised{Header: history.NewHeader(now()), Name: "by name"}, Target: instance})
		w.send(to(id, &history.ExecutionTerminated{Header: history.NewHeader(now()), Reason: text("again")}))
		w.send(to(id, completed(0, nil)))
		w.mustNotChange(id, before)
	}
}

func duringLast(w *world) {
	instance := w.create("a")
	w.next("a").schedule(0, "Activity", nil).finish()
	a := w.nextActivity()
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	w.complete(a, completed(0, nil))
	w.send(raised("a", "too late", nil))
	e.end(history.Completed, text("done")).finish()
	w.equal("instance", w.state("a").Instance, instance)
	w.mustNotChange("a", w.state("a"))
}

func successor(w *world) {
	first := w.create("a")
	w.next("a").end(history.Completed, nil).finish()
	stale := provider.TaskMessage{Event: &history.EventRaised{Header: history.NewHeader(now()), Name: "for the first"}, Target: first}
	w.send(stale)
	second, err := w.startSecond("a", live)
	w.must("start again", err)
	for w.histories[second] == nil {
		e := w.next("a")
		for _, m := range e.item.Messages {
			if m.Target == first && e.item.Instance == second {
				w.Logf("%v for the first execution was dispatched with the second execution; the engine discards it", m.Event.Type())
			}
		}
		if e.item.Instance == second {
			e.finish()
		} else {
			e.discard()
		}
	}
	w.equal("status", w.state("a").Status, history.Running)
}

func followed(w *world) {
	hub, ok := w.p.(provider.Follower)
	if !ok {
		w.Skip("the provider does not implement Follower")
	}
	parent := w.create("parent")
	start := childStart("child", "execution of child", parent, 0)
	w.next("parent").child(0, start).finish()
	w.next("child").finish()
	again := started("again", "first", nil)
	again.Tags, again.Version = map[string]string{"a": "b"}, "v"
	w.createAs(again)
	w.next("again").continueAsNew("second", text("2")).finish()
	for _, id := range []string{"parent", "child", "again"} {
		ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
		if s := hub.Follow(ctx, id); s != nil {
			w.Errorf("Follow of %q, which is running, returned %+v", id, s)
		}
		cancel()
		w.send(raised(id, "finish", nil))
		e := w.next(id).end(history.Completed, text("done"))
		told := make(chan *provider.InstanceState, 1)
		go func() {
			ctx, cancel := w.patient()
			defer cancel()
			told <- hub.Follow(ctx, id)
		}()
		time.Sleep(w.hub.Quiet) // gives Follow time to begin; a call after the end returns nil
		e.finish()
		if got, want := <-told, w.state(id); got != nil {
			want.Input = nil
			w.equal("state that Follow returned", got, want)
		} else {
			w.Logf("Follow of %q returned nil; the caller has to read the state", id)
		}
	}
}
