package providertest

import (
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var statuses = area{"statuses", []test{
	{"the status of an instance follows from its events", running(followsEvents)},
	{"an ended instance has a status, an output and a time of completion", running(ended)},
	{"the output of a failure contains its type and message", running(failureOutput)},
	{"the custom status is the one of the last episode", running(customStatus)},
	{"a checkpoint can keep the custom status", running(keptCustomStatus)},
	{"LastUpdatedAt never decreases", running(lastUpdated)},
	{"input and output are fetched if requested", running(fetched)},
}}

func followsEvents(w *world) {
	w.create("a")
	w.equal("status", w.state("a").Status, history.Pending)
	w.next("a").finish()
	w.equal("status", w.state("a").Status, history.Running)
	w.send(to("a", &history.ExecutionSuspended{Header: history.NewHeader(now()), Reason: text("wait")}))
	w.next("a").finish()
	w.equal("status", w.state("a").Status, history.Suspended)
	w.send(raised("a", "Event", nil)) // suspended instances also receive messages
	w.next("a").finish()
	w.equal("status", w.state("a").Status, history.Suspended)
	w.send(to("a", &history.ExecutionResumed{Header: history.NewHeader(now())}))
	w.next("a").finish()
	w.equal("status", w.state("a").Status, history.Running)
}

func ended(w *world) {
	for id, status := range map[string]history.RuntimeStatus{
		"completed": history.Completed, "failed": history.Failed, "terminated": history.Terminated, "canceled": history.Canceled,
	} {
		from := now()
		w.create(id)
		w.next(id).end(status, text("output of "+id)).finish()
		s := w.state(id)
		w.equal("status", s.Status, status)
		w.equal("output", s.Output, text("output of "+id))
		if s.CompletedAt.Before(from) {
			w.Errorf("%s completed at %v, which is before %v", id, s.CompletedAt, from)
		}
	}
	w.begin("running")
	if s := w.state("running"); !s.CompletedAt.IsZero() {
		w.Errorf("a running instance completed at %v", s.CompletedAt)
	}
}

func failureOutput(w *world) {
	w.create("a")
	e := w.next("a").end(history.Failed, text("the message"))
	failed := e.cp.NewEvents[len(e.cp.NewEvents)-1].(*history.ExecutionCompleted)
	failed.Failure = &history.FailureDetails{ErrorType: "pkg.Error", ErrorMessage: "the message"}
	e.finish()
	w.equal("output", w.state("a").Output, text("pkg.Error: the message"))
}

func customStatus(w *world) {
	w.create("a")
	for i, status := range []*string{nil, text(`"one"`), text(`{"two":2}`), text(`{"two":2}`), text(`""`), nil, text(`"last but one"`)} {
		w.next("a").custom(status).finish()
		if got := w.state("a").CustomStatus; !sameText(got, status) {
			w.Errorf("custom status after episode %d is %s, want %s", i, show(got), show(status))
		}
		w.send(raised("a", "Event", nil))
	}
	w.next("a").custom(text(`"last"`)).end(history.Completed, nil).finish()
	w.equal("custom status of an instance that has ended", w.state("a").CustomStatus, text(`"last"`))
}

func keptCustomStatus(w *world) {
	w.create("a")
	for _, status := range []*string{nil, text(`"one"`), text(`"` + strings.Repeat("status ", 1500) + `"`), text(`"two"`)} {
		w.next("a").custom(status).finish()
		for _, e := range []history.Event{
			&history.ExecutionSuspended{Header: history.NewHeader(now())}, &history.ExecutionResumed{Header: history.NewHeader(now())},
			&history.EventRaised{Header: history.NewHeader(now()), Name: "Event"},
		} {
			w.send(to("a", e))
			w.next("a").keepCustom().finish()
			if got := w.state("a").CustomStatus; !sameText(got, status) {
				w.Errorf("custom status after %v is %.100s, want %.100s", e.Type(), show(got), show(status))
			}
		}
		w.send(raised("a", "Event", nil))
	}
	w.next("a").keepCustom().end(history.Terminated, nil).finish()
	w.equal("custom status of an instance that has ended", w.state("a").CustomStatus, text(`"two"`))
}

func sameText(a, b *string) bool { return show(a) == show(b) }

func show(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

func lastUpdated(w *world) {
	w.create("a")
	last := w.state("a").LastUpdatedAt
	for range 3 {
		w.next("a").finish()
		s := w.state("a")
		if s.LastUpdatedAt.Before(last) {
			w.Errorf("LastUpdatedAt is %v, previously %v", s.LastUpdatedAt, last)
		}
		last = s.LastUpdatedAt
		w.send(raised("a", "Event", nil))
	}
	from := now()
	w.next("a").end(history.Completed, nil).finish()
	if got := w.state("a").LastUpdatedAt; got.Before(from) {
		w.Errorf("LastUpdatedAt is %v, although the instance ended after %v", got, from)
	}
}

func fetched(w *world) {
	w.create("a")
	w.next("a").end(history.Completed, text("output")).finish()
	for _, fetch := range []provider.Fetch{{}, {Input: true}, {Output: true}, {Input: true, Output: true}} {
		ctx, cancel := w.patient()
		s, err := w.p.Instance(ctx, "a", fetch)
		cancel()
		w.must("Instance", err)
		if fetch.Input {
			w.equal("input", s.Input, text(`"input"`))
		}
		if fetch.Output {
			w.equal("output", s.Output, text("output"))
		}
	}
}
