package providertest

import (
	"context"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var endings = area{"endings", []test{
	{"an instance that has ended is left as it is by what comes later", running(leftAlone)},
	{"what arrives while the last episode runs changes nothing", running(duringLast)},
	{"what is sent to an instance that has ended does not reach its successor by name", running(successor)},
	{"who follows an instance is told the state in which it ended", running(followed)},
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
		w.unchanged(id, before)
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
	w.unchanged("a", w.state("a"))
}

func successor(w *world) {
	first := w.create("a")
	w.next("a").end(history.Completed, nil).finish()
	stale := provider.TaskMessage{Event: &history.EventRaised{Header: history.NewHeader(now()), Name: "for the first"}, Target: first}
	w.send(stale)
	second, err := w.tryAgain("a", live)
	w.must("start again", err)
	for w.histories[second] == nil {
		e := w.next("a")
		for _, m := range e.item.Messages {
			if m.Target == first && e.item.Instance == second {
				w.Logf("%v for the first execution was handed out with the second, for the engine to drop", m.Event.Type())
			}
		}
		if e.item.Instance == second {
			e.finish()
		} else {
			e.drop()
		}
	}
	w.equal("status", w.state("a").Status, history.Running)
}

func followed(w *world) {
	hub, ok := w.p.(provider.Follower)
	if !ok {
		w.Skip("the hub does not tell how instances end")
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
			w.Errorf("%q goes on, and its follower is told %+v", id, s)
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
		time.Sleep(w.hub.Quiet) // until somebody follows it; who comes too late has to ask
		e.finish()
		if got, want := <-told, w.state(id); got != nil {
			want.Input = nil
			w.equal("state in which it is told that it ended", got, want)
		} else {
			w.Logf("the end of %q is to be asked for", id)
		}
	}
}
