package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Tests of [provider.Portable]. They are skipped if the provider does not implement it.
var copying = area{"copying", []test{
	{"the instances of a copy continue", copied},
	{"a copy contains ended instances and large payloads", copiedWhole},
	{"a copy contains rewound instances, versions and tags", copiedRewound},
	{"the timer of a failed instance fires after a copy and a rewind", copiedRewindableTimer},
	{"a copied timer and a copied scheduled start are not early", copiedTimes},
	{"copied delayed signals are not early", copiedSignals},
	{"only the timer of the current generation fires in a copy", copiedGenerations},
	{"an instance with running steps is woken in a copy", copiedSteps},
	{"an instance with running steps is woken in a copy after a crash", copiedStepsAfterCrash},
	{"the source of a copy continues as before", copiedLeftAlone},
	{"an empty hub can be copied", copiedNothing},
	{"a hub with imported data is not exact", copiedInexactly},
	{"a hub with a running worker is not copied", copiedAtWork},
	{"a hub that is not empty refuses an import", copiedOver},
	{"an error of the source fails the import", copiedInVain},
	{"a hub with an unreadable instance is not copied", copiedUnreadable},
}}

func copied(w *world) {
	w.fillAllStages()
	w.create("unstarted")
	w.send(raised("event", "Sent", text(`"in between"`)))
	exact := w.isExact()
	totals := w.copyHub()
	w.equal("instances", totals.Instances, 7)
	w.equal("activities", totals.Activities, 1)
	hasMessages(w, totals, 2, exact)

	seen := map[string]*episode{}
	for range 2 {
		ctx, cancel := w.patient()
		e := w.try(ctx)
		cancel()
		if e == nil {
			w.Fatalf("%d instances were dispatched after the copy, want 2", len(seen))
		}
		seen[e.item.Instance.InstanceID] = e
		e.finish()
	}
	if seen["unstarted"] == nil || seen["event"] == nil {
		w.Errorf("after the copy, other instances were dispatched than those with messages")
	}
	a := w.nextActivity()
	w.equal("input of the activity", a.Task.Input, text(`"input"`))
	w.complete(a, completed(0, text(`"result"`)))
	e := w.next("queued")
	w.equal("result", e.fresh[0].Event.(*history.TaskCompleted).Result, text(`"result"`))
	e.end(history.Completed, text(`"done"`)).finish()
	w.equal("output", w.state("queued").Output, text(`"done"`))

	w.equal("status of what is suspended", w.state("suspended").Status, history.Suspended)
	w.equal("input of a second generation", w.state("generations").Input, text(`"again"`))
	w.send(raised("generations", "Go on", nil))
	e = w.next("generations")
	w.equal("execution", e.item.Instance.ExecutionID, "second execution of generations")
	e.finish()

	w.send(raised("child", "Done", nil))
	e = w.next("child").end(history.Completed, text(`"child's"`))
	e.cp.Messages = append(e.cp.Messages, provider.TaskMessage{
		Event:  &history.SubOrchestrationInstanceCompleted{Header: history.NewHeader(now()), TaskScheduledID: 0, Result: text(`"child's"`)},
		Target: w.state("parent").Instance,
	})
	e.finish()
	w.next("parent").end(history.Completed, nil).finish()
	w.noActivity("all are done")
}

func copiedWhole(w *world) {
	w.portable()
	w.start()
	input, output, status := large("input"), large("output"), text(`"status"`)
	start := started("large", "execution", input)
	start.Version, start.Tags = "1.2", map[string]string{"k": "v"}
	w.createAs(start)
	w.next("large").custom(status).end(history.Completed, output).finish()
	w.create("failed")
	w.next("failed").end(history.Failed, text("it broke")).finish()
	before := map[string]*provider.InstanceState{"large": w.state("large"), "failed": w.state("failed")}
	w.copyHub()
	for id, want := range before {
		got := w.state(id)
		w.equal("state of "+id, got, want)
		w.equal("history of "+id, w.history(id), w.histories[want.Instance])
	}
	_, err := w.startSecond("large", live)
	w.must("start a copied instance again that has ended", err)
	w.next("large").finish()
}

func copiedRewound(w *world) {
	w.portable()
	w.start()
	tagged := func(id string) *history.ExecutionStarted {
		start := started(id, "execution of "+id, text(`"input"`))
		start.Version, start.Tags = "1.2", map[string]string{"k": "v"}
		return start
	}
	w.createAs(tagged("begun"))
	w.next("begun").finish()
	w.failing("rewound")
	w.failing("goes on")
	w.rewindPlan("goes on")
	w.must("Rewind", w.rewind("goes on", "why"))
	w.nextRewound("goes on").schedule(0, "Activity", nil).finish()
	w.rewindPlan("rewound")
	w.must("Rewind", w.rewind("rewound", "why"))
	w.createAs(tagged("unbegun"))
	before := map[string]*provider.InstanceState{}
	for _, id := range []string{"begun", "rewound", "goes on", "unbegun"} {
		before[id] = w.state(id)
	}
	w.copyHub()
	for id, want := range before {
		w.equal("state of "+id, w.state(id), want)
		w.equal("history of "+id, w.history(id), w.histories[want.Instance])
	}
	w.complete(w.nextActivity(), completed(0, text("it works")))
	for _, id := range []string{"rewound", "goes on", "unbegun"} {
		e := w.nextOf(id)
		if start, ok := e.item.Messages[0].Event.(*history.ExecutionStarted); ok {
			w.equal("version", start.Version, "1.2")
			w.equal("tags", start.Tags, map[string]string{"k": "v"})
		}
		e.end(history.Completed, nil).finish()
		w.equal("status", w.state(id).Status, history.Completed)
	}
	w.quiet("all have ended")
}

func copiedRewindableTimer(w *world) {
	if w.hub.IsRealTime && w.hub.Visibility > 0 {
		w.Skip("a copy from queues waits for a timer that is due within a minute; simulated accounts have this test")
	}
	w.portable()
	w.start()
	w.create("a")
	w.failingWithTimers(w.next("a")).finish()
	w.copyInexactly()
	w.rewindPlan("a")
	w.must("Rewind", w.rewind("a", "why"))
	w.waitsForTimer("a")
}

func copiedTimes(w *world) {
	w.portable()
	w.start()
	due := now().Add(time.Second)
	w.create("timer")
	w.next("timer").timer(0, due).timer(1, now().Add(24*time.Hour)).finish()
	later := started("later", "execution of later", text(`"input"`))
	later.ScheduledStart = due
	w.createAs(later)
	exact := w.isExact()
	totals := w.copyHub()
	hasMessages(w, totals, 3, exact)
	for range 2 {
		ctx, cancel := w.patient()
		e := w.try(ctx)
		cancel()
		if e == nil {
			w.Fatal("a timer or a start was lost")
		}
		if early := time.Until(due); early > 0 {
			w.Errorf("%q was dispatched %v early", e.item.Instance.InstanceID, early)
		}
		e.finish()
	}
	w.quiet("one timer is a day away")
}

// The timer of the previous generation is due at the same time and has the same number.
func copiedGenerations(w *world) {
	w.portable()
	w.start()
	w.create("a")
	w.next("a").timer(0, now().Add(moment)).finish()
	w.send(raised("a", "Event", nil))
	w.next("a").continueAsNew("second", nil).timer(0, now().Add(moment)).finish()
	w.stopIfRunning()
	time.Sleep(2 * moment)
	w.copyInexactly()
	for {
		e := w.next("a") // the event may be redelivered
		fired := slices.IndexFunc(e.fresh, func(m provider.TaskMessage) bool { return m.Event.Type() == history.TypeTimerFired })
		if fired >= 0 {
			w.equal("execution whose timer fires", e.fresh[fired].Target.ExecutionID, "second")
			e.finish()
			return
		}
		e.finish()
	}
}

func copiedSteps(w *world) {
	w.portable()
	w.start()
	w.begin("a")
	w.send(raised("a", "Event", nil))
	w.next("a").withSteps().finish()
	w.copyHub()
	w.woken("a").end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

// copiedStepsAfterCrash kills a worker before a message that wakes the instance may be in a queue.
func copiedStepsAfterCrash(w *world) {
	w.start()
	w.create("a")
	w.next("a").withSteps().commit()
	w.kill()
	w.copyInexactly()
	w.woken("a").end(history.Completed, nil).finish()
	w.quiet("the instance has ended")
}

// copiedSignals uses several forms of time that .NET accepts in the name of a signal, with and
// without a zone.
func copiedSignals(w *world) {
	w.portable()
	w.start()
	due := now().Add(time.Second)
	w.create("sender")
	e := w.next("sender")
	names := []string{later("", due).Event.(*history.EventRaised).Name}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.9999999", "2006-01-02T15:04:05", "2006-01-02T15:04:05.0000000-07:00"} {
		names = append(names, "op@"+now().Add(24*time.Hour).UTC().Format(layout))
	}
	for i, name := range names {
		e.raise(i, fmt.Sprintf("@counter@%d", i), name, text(fmt.Sprintf(`{"op":"later","id":"%d"}`, i)))
	}
	e.end(history.Completed, nil).finish()
	from, to := w.portable()
	w.stopIfRunning()
	hasMessages(w, w.mustCopy(from, to), len(names), w.isExact())
	w.equal("messages of the copy", w.messagesOf(to), w.messagesOf(from))
	w.use(to.(provider.Provider))
	got := w.next("@counter@0")
	if early := time.Until(due); early > 0 {
		w.Errorf("a signal was delivered %v early", early)
	}
	got.setEntityState("first", "state").finish()
	w.quiet("the others are a day away")
}

// hasMessages checks the number of copied messages. A provider that is not exact deletes
// messages after their checkpoint. It copies such a message too if the deletion takes longer
// than the worker's drain timeout.
func hasMessages(w *world, totals provider.Totals, want int, exact bool) {
	w.Helper()
	if got := totals.Messages; got < want || got > want && exact {
		w.Errorf("%d messages were copied, want %d", got, want)
	}
}

// copiedUnreadable checks that a copy does not skip an unreadable instance silently.
func copiedUnreadable(w *world) {
	if w.hub.Damage == nil {
		w.Skip("Hub.Damage is nil")
	}
	w.create("a")
	w.create("unreadable")
	w.start()
	w.stopIfRunning()
	w.hub.Damage(w.T, "unreadable")
	from, to := w.portable()
	ctx, cancel := w.patient()
	defer cancel()
	_, err := provider.CopyHub(ctx, from, to, provider.ExportOptions{}, nil)
	if err == nil || !strings.Contains(err.Error(), "unreadable") {
		w.Errorf("copy of a hub with an unreadable instance: %v; want an error that contains its ID", err)
	}
	w.equal("first instance of the source", w.list(provider.Query{})[0].Instance.InstanceID, "a")
}

// messageList collects descriptions of the messages that are written to it.
type messageList []string

func (*messageList) Instance(context.Context, *provider.InstanceState, []history.Event) error {
	return nil
}

func (*messageList) Activity(context.Context, provider.TaskMessage) error { return nil }

func (l *messageList) Message(_ context.Context, m provider.TaskMessage) error {
	*l = append(*l, fmt.Sprintf("%s %s due %v", m.Target.InstanceID, m.Event.Type(), provider.DueTime(m).UTC()))
	return nil
}

func copiedLeftAlone(w *world) {
	w.fillAllStages()
	w.send(raised("event", "Sent", nil))
	from, to := w.portable()
	w.mustCopy(from, to)
	if w.hub.Reopen != nil {
		w.use(w.hub.Reopen(w.T))
	} else {
		w.start()
	}
	w.next("event").finish()
	w.complete(w.nextActivity(), completed(0, nil))
	w.next("queued").finish()
	w.noActivity("there was one")
}

func copiedNothing(w *world) {
	from, to := w.portable()
	ctx, cancel := w.patient()
	defer cancel()
	_, err := w.p.Instances(ctx, provider.Query{}) // creates the hub
	w.must("Instances", err)
	w.equal("totals", w.mustCopy(from, to), provider.Totals{})
}

func copiedInexactly(w *world) {
	from, to := w.portable()
	w.create("a")
	w.stopIfRunning()
	w.mustCopy(from, to)
	if hub, ok := to.(provider.ExactlyOnce); ok && hub.IsExactlyOnce() {
		w.Errorf("IsExactlyOnce is true after an import; want false, because imported messages may be redelivered")
	}
}

func copiedAtWork(w *world) {
	from, to := w.portable()
	w.start()
	w.begin("a") // the worker owns the hub now
	ctx, cancel := w.patient()
	defer cancel()
	if _, err := provider.CopyHub(ctx, from, to, provider.ExportOptions{}, nil); !errors.Is(err, provider.ErrHubBusy) {
		w.Errorf("CopyHub with a running worker: %v, want %v", err, provider.ErrHubBusy)
	}
}

func copiedOver(w *world) {
	from, to := w.portable()
	w.start()
	w.begin("a")
	w.stopIfRunning()
	w.mustCopy(from, to)
	ctx, cancel := w.patient()
	defer cancel()
	if _, err := provider.CopyHub(ctx, from, to, provider.ExportOptions{}, nil); !errors.Is(err, provider.ErrHubNotEmpty) {
		w.Errorf("CopyHub into a hub that is not empty: %v, want %v", err, provider.ErrHubNotEmpty)
	}
}

func copiedInVain(w *world) {
	_, to := w.portable()
	ctx, cancel := w.patient()
	defer cancel()
	broken := errors.New("broken")
	if err := to.Import(ctx, func(provider.HubWriter) error { return broken }); !errors.Is(err, broken) {
		w.Errorf("Import whose source fails: %v, want %v", err, broken)
	}
}
