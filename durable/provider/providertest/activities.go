package providertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var activities = area{"activities", []test{
	{"an activity is dispatched as it was scheduled", running(asScheduled)},
	{"the result of an activity is delivered", running(resultArrives)},
	{"the failure of an activity is delivered unchanged", running(failureArrives)},
	{"an activity is dispatched to one caller", running(oneRunner)},
	{"an abandoned activity is redelivered with its attempt number, with a longer delay the second time", running(activityAbandoned)},
	{"an activity abandoned with a RetryAtError is redelivered at its time, independent of the attempts", running(activityHeld)},
	{"the results of many activities are all delivered", running(manyActivities)},
	{"activities of an execution that has ended still run", running(orphans)},
	{"an activity can be completed while its instance is in flight", running(completedMeanwhile)},
	{"a completed activity is not redelivered", running(notAgain)},
	{"the history contains exactly the inputs of the committed events", running(inputsInHistory)},
}}

func asScheduled(w *world) {
	instance := w.create("a")
	e := w.next("a")
	task := &history.TaskScheduled{
		Header: action(7), Name: "Namespace.Activity", Version: "v2", Input: text(`["ünï",{"b":null}]`),
		Tags:               map[string]string{"t": "1"},
		ParentTraceContext: &history.TraceContext{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: text("a=b")},
	}
	recorded := new(*task)
	recorded.Input, recorded.ParentTraceContext = nil, nil
	e.decide(recorded)
	e.cp.Activities = append(e.cp.Activities, provider.TaskMessage{Event: task, Target: instance})
	e.schedule(8, "WithoutInput", nil).schedule(9, "WithEmptyInput", text("")).finish()
	got := make(map[int]*provider.ActivityWorkItem)
	for range 3 {
		a := w.nextActivity()
		got[a.Task.EventID] = a
		w.equal("instance that waits", a.Instance, instance)
		w.equal("attempt", a.Attempt, 1)
	}
	w.equal("number of activities", len(got), 3)
	w.equal("activity", got[7].Task, task)
	w.equal("activity without input", got[8].Task.Input, (*string)(nil))
	w.equal("activity with empty input", got[9].Task.Input, text(""))
}

// inputsInHistory checks that the history contains the inputs of the committed events. The
// engine decides whether an event has an input; its message always has one.
func inputsInHistory(w *world) {
	w.create("a")
	long := text(`"` + strings.Repeat("x", 100_000) + `"`)
	kept := []history.Event{
		&history.TaskScheduled{Header: action(0), Name: "Kept", Input: text(`["a"]`)},
		&history.TaskScheduled{Header: action(1), Name: "Long", Input: long},
		&history.SubOrchestrationInstanceCreated{Header: action(2), Name: "Child", InstanceID: "c", Input: text("1")},
	}
	e := w.next("a").decide(kept...)
	for _, ev := range kept[:2] {
		e.cp.Activities = append(e.cp.Activities, provider.TaskMessage{Event: ev, Target: e.cp.Instance})
	}
	e.schedule(3, "NotKept", text(`["b"]`)).finish()
	got := map[int]*string{}
	for _, ev := range w.history("a") {
		switch ev := ev.(type) {
		case *history.TaskScheduled:
			got[ev.EventID] = ev.Input
		case *history.SubOrchestrationInstanceCreated:
			got[ev.EventID] = ev.Input
		}
	}
	w.equal("inputs in the history", got, map[int]*string{0: text(`["a"]`), 1: long, 2: text("1"), 3: nil})
}

func resultArrives(w *world) {
	a := w.scheduled("a")
	w.quiet("its activity was not completed")
	result := completed(0, text(`"result"`))
	w.complete(a, result)
	e := w.next("a")
	w.equal("messages", e.item.Messages, []provider.TaskMessage{{Event: result, Target: a.Instance}})
	e.finish()
}

func failureArrives(w *world) {
	a := w.scheduled("a")
	result := &history.TaskFailed{
		Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: text("it broke"),
		Failure: &history.FailureDetails{ErrorType: "E", ErrorMessage: "it broke", StackTrace: text("here"), IsNonRetriable: true},
	}
	w.complete(a, result)
	e := w.next("a")
	w.equal("messages", e.item.Messages, []provider.TaskMessage{{Event: result, Target: a.Instance}})
	e.finish()
}

func oneRunner(w *world) {
	w.scheduled("a")
	w.noActivity("it is already running")
}

func activityAbandoned(w *world) {
	a := w.scheduled("a")
	var delays []time.Duration
	for attempt := 2; attempt <= 3; attempt++ {
		from := time.Now()
		ctx, cancel := w.patient()
		w.must("Abandon", a.Lock.Abandon(ctx, errAbandoned))
		cancel()
		a = w.nextActivity()
		delays = append(delays, time.Since(from))
		w.equal("attempt", a.Attempt, attempt)
		w.equal("input", a.Task.Input, text(`"input"`))
	}
	w.checkDelays(delays)
	w.complete(a, completed(0, nil))
	w.next("a").finish()
}

func manyActivities(w *world) {
	const n, workers = 40, 4
	w.create("a")
	e := w.next("a")
	for i := range n {
		e.schedule(i, "Activity", text(fmt.Sprint(i)))
	}
	e.finish()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range n / workers {
				if err := w.runOne(); err != nil {
					w.Errorf("run an activity: %v", err)
				}
			}
		})
	}
	results := make(map[int]string)
	for _, m := range w.collect("a", n) {
		result := m.Event.(*history.TaskCompleted)
		results[result.TaskScheduledID] = *result.Result
	}
	all.Wait()
	for i := range n {
		if results[i] != fmt.Sprint(i) {
			w.Errorf("the result of activity %d is %q", i, results[i])
		}
	}
	w.noActivity("all were completed")
}

func orphans(w *world) {
	w.create("a")
	w.next("a").schedule(0, "Activity", nil).end(history.Completed, nil).finish()
	a := w.nextActivity()
	w.equal("name", a.Task.Name, "Activity")
	w.complete(a, completed(0, nil))
	w.discardUntilQuiet(func(*episode) {})
	w.equal("status", w.state("a").Status, history.Completed)
}

func completedMeanwhile(w *world) {
	a := w.scheduled("a")
	w.send(raised("a", "Event", nil))
	e := w.next("a")
	result := completed(0, text("result"))
	w.complete(a, result)
	w.quiet("the instance is in flight")
	e.finish()
	w.equal("messages", w.collect("a", 1), []provider.TaskMessage{{Event: result, Target: a.Instance}})
}

func notAgain(w *world) {
	a := w.scheduled("a")
	w.complete(a, completed(0, nil))
	w.noActivity("it was completed")
	w.next("a").finish()
	w.noActivity("it was completed and its result was committed")
	w.quiet("the result was committed")
}

func activityHeld(w *world) {
	a := w.scheduled("a")
	w.hold(func(cause error) {
		ctx, cancel := w.patient()
		defer cancel()
		w.must("Abandon", a.Lock.Abandon(ctx, cause))
		a = w.nextActivity()
	})
	w.complete(a, completed(0, nil))
}
