package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var starting = area{"starting", []test{
	{"a new instance is Pending and is dispatched with its start", running(newInstance)},
	{"a start arrives unchanged", running(wholeStart)},
	{"an unknown instance is not found", unknownInstance},
	{"an instance in a refused status is not started again", running(refused)},
	{"an instance that has ended is replaced", running(replaced)},
	{"a scheduled start is not dispatched early", running(scheduledStart)},
	{"events wait for a scheduled start", running(eventsBeforeScheduledStart)},
	{"a termination before the first episode ends the instance", terminatedBeforeStart(0)},
	{"a termination before an overdue scheduled start ends the instance", terminatedBeforeStart(moment)},
	{"many concurrent starts all succeed", running(manyStarts)},
}}

func newInstance(w *world) {
	instance := w.create("a")
	s := w.state("a")
	w.equal("status before the first episode", s.Status, history.Pending)
	w.equal("instance", s.Instance, instance)
	w.equal("name", s.Name, "Orchestrator")
	w.equal("input", s.Input, text(`"input"`))
	w.equal("output", s.Output, (*string)(nil))
	w.equal("history before the first episode", w.history("a"), []history.Event(nil))

	e := w.next("a")
	w.equal("instance of the work item", e.item.Instance, instance)
	if got := e.item.Messages[0].Event.Type(); got != history.TypeExecutionStarted {
		w.Errorf("first message is %v, want the start", got)
	}
	e.finish()
	w.equal("status after the first episode", w.state("a").Status, history.Running)
	w.quiet("its start was committed")
}

func wholeStart(w *world) {
	start := started("a", "execution", text(`{"x":"ü"}`))
	start.Version = "1.2"
	start.Tags = map[string]string{"colour": "blue", "size": ""}
	start.Generation = new(3)
	w.createAs(start)
	e := w.next("a")
	w.equal("start", e.item.Messages[0], provider.TaskMessage{Event: start, Target: start.Instance})
	e.finish()
	s := w.state("a")
	w.equal("version", s.Version, "1.2")
	w.equal("tags", s.Tags, start.Tags)
	w.equal("generation", s.Generation, 3)
	w.equal("time of creation", s.CreatedAt, start.Timestamp)
}

func unknownInstance(w *world) {
	ctx, cancel := w.patient()
	defer cancel()
	if s, err := w.p.Instance(ctx, "nobody", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		w.Errorf("Instance returned %+v, %v, want %v", s, err, provider.ErrInstanceNotFound)
	}
	w.equal("history", w.history("nobody"), []history.Event(nil))
}

func refused(w *world) {
	first := w.create("a")
	_, err := w.startSecond("a", live)
	w.mustExist(err, "a", history.Pending)

	w.next("a").finish()
	_, err = w.startSecond("a", live)
	w.mustExist(err, "a", history.Running)
	s := w.state("a")
	w.equal("instance", s.Instance, first)
	w.equal("input", s.Input, text(`"input"`))
	w.equal("history", w.history("a"), w.histories[first])
	w.quiet("it was not started again")

	w.send(raised("a", "finish", nil))
	w.next("a").end(history.Completed, nil).finish()
	_, err = w.startSecond("a", append(live, history.Completed))
	w.mustExist(err, "a", history.Completed)
}

func replaced(w *world) {
	w.create("a")
	w.next("a").schedule(0, "Late", nil).custom(text(`"old"`)).end(history.Failed, text("old output")).finish()
	late := w.nextActivity()

	second, err := w.startSecond("a", live)
	w.must("start an instance that has ended", err)
	s := w.state("a")
	w.equal("instance", s.Instance, second)
	w.equal("status", s.Status, history.Pending)
	w.equal("input", s.Input, text(`"again"`))
	w.equal("output", s.Output, (*string)(nil))
	w.equal("custom status", s.CustomStatus, (*string)(nil))

	e := w.next("a")
	w.equal("instance of the work item", e.item.Instance, second)
	e.finish()
	w.equal("history", w.history("a"), w.histories[second])

	// The result of the first execution's activity must not reach the second execution.
	w.complete(late, completed(0, nil))
	w.discardUntilQuiet(func(e *episode) {
		for _, m := range e.item.Messages {
			if m.Target.ExecutionID == second.ExecutionID || m.Target.ExecutionID == "" {
				w.Errorf("%v of the first execution was dispatched as a message of the second", m.Event.Type())
			}
		}
	})
}

// moment is a short delay that a storage with a resolution of one second can still measure.
const moment = 1200 * time.Millisecond

func scheduledStart(w *world) {
	start := started("a", "execution", nil)
	start.ScheduledStart = now().Add(moment)
	w.createAs(start)
	s := w.state("a")
	w.equal("status", s.Status, history.Pending)
	w.equal("scheduled start", s.ScheduledAt, start.ScheduledStart)
	e := w.next("a")
	if early := time.Until(start.ScheduledStart); early > 0 {
		w.Errorf("the instance was dispatched %v early", early)
	}
	e.finish()
}

func eventsBeforeScheduledStart(w *world) {
	start := started("a", "execution", nil)
	start.ScheduledStart = now().Add(moment)
	w.createAs(start)
	event := raised("a", "early", text("1"))
	w.send(event)
	w.equal("messages", w.collect("a", 1), []provider.TaskMessage{event})
	if early := time.Until(start.ScheduledStart); early > 0 {
		w.Errorf("the event was dispatched %v before the instance's start", early)
	}
}

// terminatedBeforeStart sends a start and its termination before a worker runs. The engine then
// runs no code of the orchestrator.
func terminatedBeforeStart(delay time.Duration) func(*world) {
	return func(w *world) {
		start := started("a", "execution", nil)
		if delay > 0 {
			start.ScheduledStart = now().Add(delay)
		}
		w.createAs(start)
		w.send(to("a", &history.ExecutionTerminated{Header: history.NewHeader(now()), Reason: text("enough")}))
		time.Sleep(2 * delay)
		w.start()
		for deadline := time.Now().Add(w.hub.Patience); time.Now().Before(deadline); {
			ctx, cancel := context.WithTimeout(w.Context(), w.hub.Quiet)
			e := w.try(ctx)
			cancel()
			if e != nil {
				w.equal("work item has the termination", strings.Contains(describe(e.item.Messages), "ExecutionTerminated"), true)
				e.end(history.Terminated, text("enough")).finish()
			}
			if s := w.state("a"); s.Status.IsTerminal() {
				w.equal("status", s.Status, history.Terminated)
				w.discardUntilQuiet(func(e *episode) { w.Errorf("it was dispatched with %s when it had ended", describe(e.item.Messages)) })
				return
			}
		}
		w.Fatalf("the instance does not end; its state is %+v", w.state("a"))
	}
}

func manyStarts(w *world) {
	const n = 30
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			id := fmt.Sprintf("instance-%02d", i)
			if err := w.tryCreate(started(id, "execution of "+id, nil), live); err != nil {
				w.Errorf("start %s: %v", id, err)
			}
		})
	}
	all.Wait()
	seen := make(map[string]bool)
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Patience)
	defer cancel()
	for len(seen) < n {
		e := w.try(ctx)
		if e == nil {
			w.Fatalf("only %d of %d instances were dispatched", len(seen), n)
		}
		seen[e.item.Instance.InstanceID] = true
		e.end(history.Completed, nil).finish()
	}
}
