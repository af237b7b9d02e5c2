package providertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var workItems = area{"work items", []test{
	{"an instance is dispatched to one caller at a time", running(oneCaller)},
	{"messages that arrive during an episode are in the next work item", running(meanwhile)},
	{"abandoned messages are redelivered, with a longer delay the second time", running(abandoned)},
	{"messages abandoned with a RetryAtError are redelivered at its time, independent of the attempts", running(heldUntil)},
	{"a termination is delivered immediately while abandoned messages wait", running(terminatedWhilePaused)},
	{"a resumption is delivered immediately with the abandoned messages", running(resumedWhilePaused)},
	{"messages released without a commit are redelivered", running(releasedOnly)},
	{"several instances are dispatched at the same time", running(several)},
	{"the locks of work in flight are renewed", running(renewed)},
	{"waiting for work returns the context's error when the context ends", running(waitingEnds)},
}}

func oneCaller(w *world) {
	w.begin("a")
	w.send(raised("a", "first", nil))
	e := w.next("a")
	ctx, cancel := context.WithTimeout(w.Context(), 2*w.hub.Quiet)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if other := w.try(ctx); other != nil {
				w.Errorf("the instance was dispatched a second time, with %s", describe(other.item.Messages))
			}
		})
	}
	w.send(raised("a", "second", nil))
	all.Wait()
	e.finish()
	e = w.next("a")
	w.equal("number of messages", len(e.item.Messages), 1)
	e.finish()
}

func meanwhile(w *world) {
	w.create("a")
	e := w.next("a")
	late := []provider.TaskMessage{raised("a", "first", nil), raised("a", "second", text("2"))}
	for _, m := range late {
		w.send(m)
	}
	e.finish()
	got := w.collect("a", 2)
	for _, m := range late {
		if !containsMessage(got, m) {
			w.Errorf("%s was not delivered", fingerprint(m))
		}
	}
}

func abandoned(w *world) {
	w.begin("a")
	event := raised("a", "Event", nil)
	w.send(event)
	var delays []time.Duration
	e := w.next("a")
	for range 2 {
		from := time.Now()
		e.abandon()
		e = w.next("a")
		delays = append(delays, time.Since(from))
		w.equal("messages", e.item.Messages, []provider.TaskMessage{event})
	}
	w.checkDelays(delays)
	e.finish()
	w.quiet("the event was committed")
}

func heldUntil(w *world) {
	w.begin("a")
	event := raised("a", "Event", nil)
	w.send(event)
	e := w.next("a")
	w.hold(func(cause error) {
		ctx, cancel := w.patient()
		defer cancel()
		w.must("Abandon", e.item.Session.Abandon(ctx, cause))
		e.release()
		e = w.next("a")
		w.equal("messages", e.item.Messages, []provider.TaskMessage{event})
	})
	e.finish()
}

func terminatedWhilePaused(w *world) {
	w.abandonOften()
	end := to("a", &history.ExecutionTerminated{Header: history.NewHeader(now()), Reason: text("enough")})
	w.send(end)
	if got := w.collect("a", 1); !containsMessage(got, end) {
		w.Errorf("got %s without the termination", describe(got))
	}
}

func resumedWhilePaused(w *world) {
	event := w.abandonOften()
	resumption := to("a", &history.ExecutionResumed{Header: history.NewHeader(now()), Reason: text("mended")})
	w.send(resumption)
	if got := w.collect("a", 2); !containsMessage(got, resumption) || !containsMessage(got, event) {
		w.Errorf("got %s, want the resumption and the event", describe(got))
	}
}

func releasedOnly(w *world) {
	w.create("a")
	e := w.next("a")
	start := e.item.Messages
	e.release()
	e = w.next("a")
	w.equal("messages", e.item.Messages, start)
	e.finish()
}

func several(w *world) {
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		w.create(id)
	}
	ctx, cancel := w.patient()
	defer cancel()
	var held []*episode
	var got []string
	for range ids {
		e := w.try(ctx)
		if e == nil {
			w.Fatalf("only %v were dispatched", got)
		}
		held = append(held, e)
		got = append(got, e.item.Instance.InstanceID)
	}
	slices.Sort(got)
	w.equal("instances", got, ids)
	for _, e := range held {
		e.finish()
	}
}

func renewed(w *world) {
	if w.hub.Visibility == 0 {
		w.Skip("locks do not expire")
	}
	w.create("a")
	w.next("a").schedule(0, "Activity", nil).finish()
	w.create("b")
	e, a := w.next("b"), w.nextActivity()
	ctx, cancel := context.WithTimeout(w.Context(), 5*w.hub.Visibility/2)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		if other := w.try(ctx); other != nil {
			w.Errorf("%q was dispatched while it was in flight", other.item.Instance.InstanceID)
		}
	})
	all.Go(func() {
		if other, err := w.p.NextActivity(ctx); err == nil {
			w.Errorf("activity %s was dispatched while it ran", other.Task.Name)
		}
	})
	all.Wait()
	e.finish()
	w.complete(a, completed(0, nil))
	w.next("a").finish()
	w.equal("status", w.state("b").Status, history.Running)
}

func waitingEnds(w *world) {
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
	defer cancel()
	if _, err := w.p.NextOrchestration(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("NextOrchestration returned %v, want %v", err, context.DeadlineExceeded)
	}
	if _, err := w.p.NextActivity(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("NextActivity returned %v, want %v", err, context.DeadlineExceeded)
	}
	w.begin("a") // the ended calls lost no work
}
