package providertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var payloads = area{"large payloads", []test{
	{"large inputs, events, results and outputs arrive complete", running(largeEverywhere)},
	{"a large custom status can be read", running(largeCustomStatus)},
	{"an episode with many events can be committed", running(manyEvents)},
	{"payload sizes around the limits of storage services are accepted", running(awkwardSizes)},
	{"a long text blocks no instance", running(longTexts)},
	{"an ID that is too long matches no instance and is refused", running(longIDs)},
}}

// large returns a JSON text of about 1 MB. The text compresses badly and contains multi-byte
// characters.
func large(seed string) *string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; b.Len() < 1<<20; i++ {
		b.WriteString(seed)
		b.WriteRune(rune('a' + i*i%26))
		b.WriteRune(rune(0x4e00 + i%2000))
	}
	b.WriteByte('"')
	return text(b.String())
}

func largeEverywhere(w *world) {
	input, event, result, output := large("input"), large("event"), large("result"), large("output")
	instance := w.createAs(started("a", "execution", input))
	e := w.next("a")
	w.equal("input in the start", e.item.Messages[0].Event.(*history.ExecutionStarted).Input, input)
	e.schedule(0, "Activity", input).finish()
	w.equal("input in the instance's state", w.state("a").Input, input)

	a := w.nextActivity()
	w.equal("input of the activity", a.Task.Input, input)
	w.complete(a, completed(0, result))
	e = w.next("a")
	w.equal("result", e.item.Messages[0].Event.(*history.TaskCompleted).Result, result)
	e.raise(1, "a", "Event", event).finish()

	e = w.next("a")
	w.equal("event", e.item.Messages[0].Event.(*history.EventRaised).Input, event)
	e.end(history.Completed, output).finish()
	w.equal("output", w.state("a").Output, output)
	w.equal("history", w.history("a"), w.histories[instance])
}

func largeCustomStatus(w *world) {
	w.create("a")
	status := text(`"` + strings.Repeat("status ", 1500) + `"`)
	w.next("a").custom(status).finish()
	w.equal("custom status", w.state("a").CustomStatus, status)
	w.send(raised("a", "Event", nil))
	w.next("a").custom(text(`"small"`)).finish()
	w.equal("custom status", w.state("a").CustomStatus, text(`"small"`))
}

func manyEvents(w *world) {
	const n = 350
	instance := w.create("a")
	e := w.next("a")
	for i := range n {
		e.decide(&history.TaskScheduled{Header: action(i), Name: "Activity"})
	}
	e.finish()
	w.equal("history", w.history("a"), w.histories[instance])
	w.send(raised("a", "Event", nil))
	w.next("a").finish() // compares the history of the work item
}

func awkwardSizes(w *world) {
	w.begin("a")
	for _, size := range []int{32767, 32768, 32769, 45 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1} {
		payload := text(`"` + strings.Repeat("x", size-2) + `"`)
		event := raised("a", "Event", payload)
		w.send(event)
		w.equal("messages", w.collect("a", 1), []provider.TaskMessage{event})
	}
	w.equal("number of events", len(w.history("a")), len(w.histories[w.state("a").Instance]))
	past := w.history("a")
	w.equal("history", past, w.histories[w.state("a").Instance])
}

// longTexts tests every text that can come from outside. The sizes are above the limits of a
// queue message, of a table column and of a table row. A hub may truncate texts that it cannot
// store and must then mark them.
func longTexts(w *world) {
	sizes := []int{40 << 10, 70 << 10, 2 << 20}
	if testing.Short() {
		sizes = sizes[:2] // the last size takes most of the suite's time
	}
	for _, size := range sizes {
		long := strings.Repeat("x", size)
		failure := &history.FailureDetails{
			ErrorType: long, ErrorMessage: long, StackTrace: &long, IsNonRetriable: true,
			InnerFailure: &history.FailureDetails{ErrorType: long, ErrorMessage: long, StackTrace: &long},
		}
		id := func(of string) string { return fmt.Sprintf("%s of %d", of, size) }
		goesOn := func(id string) {
			w.Helper()
			w.send(raised(id, "Last", nil))
			w.next(id).end(history.Completed, nil).finish()
			w.equal("status of "+id, w.state(id).Status, history.Completed)
		}

		start := started(id("start"), "execution of "+id("start"), nil)
		start.Name, start.Version, start.Tags = long, long, map[string]string{"tag": long}
		w.createAs(start)
		w.equal("name", w.state(id("start")).Name, long)
		w.next(id("start")).custom(text(`"` + long + `"`)).finish()
		w.equal("name", w.state(id("start")).Name, long)
		w.equal("version", w.state(id("start")).Version, long)
		w.equal("tags", w.state(id("start")).Tags, start.Tags)
		if got := w.state(id("start")).CustomStatus; got == nil || !json.Valid([]byte(*got)) {
			w.Errorf("a custom status of %d is not JSON: %v", size, got)
		}
		goesOn(id("start"))

		w.begin(id("events"))
		for _, m := range []provider.TaskMessage{
			raised(id("events"), long, nil),
			to(id("events"), &history.ExecutionSuspended{Header: history.NewHeader(now()), Reason: &long}),
			to(id("events"), &history.ExecutionResumed{Header: history.NewHeader(now()), Reason: &long}),
			to(id("events"), &history.GenericEvent{Header: history.NewHeader(now()), Data: &long}),
		} {
			w.send(m)
			w.next(id("events")).finish()
		}
		goesOn(id("events"))

		w.begin(id("decisions"))
		w.send(raised(id("decisions"), "Event", nil))
		parent := w.state(id("decisions")).Instance
		child := childStart(id("child"), "execution of "+id("child"), parent, 2)
		childEvent := child.Event.(*history.ExecutionStarted)
		childEvent.Name, childEvent.Version = long, long
		e := w.next(id("decisions")).schedule(0, long, nil).raise(1, id("events"), long, nil)
		e.cp.Messages = nil // the receiver has ended
		e.decide(
			&history.SubOrchestrationInstanceCreated{Header: action(2), Name: long, Version: long, InstanceID: id("child")},
			&history.TaskScheduled{Header: action(3), Name: long, Version: long, Tags: map[string]string{"tag": long}},
		)
		e.cp.Messages = append(e.cp.Messages, child)
		e.finish()
		w.next(id("child")).finish()
		goesOn(id("child"))
		w.complete(w.nextActivity(), &history.TaskFailed{
			Header: history.NewHeader(now()), TaskScheduledID: 0, Reason: &long, Details: &long, Failure: failure,
		})
		w.next(id("decisions")).finish()
		goesOn(id("decisions"))

		w.begin(id("failure"))
		w.send(raised(id("failure"), "Event", nil))
		w.next(id("failure")).decide(&history.ExecutionCompleted{
			Header: action(0), Status: history.Failed, Result: &long, Failure: failure,
		}).finish()
		w.equal("status of "+id("failure"), w.state(id("failure")).Status, history.Failed)
		if _, ok := w.p.(provider.Rewinder); ok {
			w.must("Rewind", w.rewind(id("failure"), long))
			w.histories[w.state(id("failure")).Instance] = w.history(id("failure"))
			w.nextRewound(id("failure")).finish()
			goesOn(id("failure"))
		}

		w.begin(id("terminated"))
		termination := func(id string) provider.TaskMessage {
			return to(id, &history.ExecutionTerminated{Header: history.NewHeader(now()), Reason: &long})
		}
		w.send(termination(id("terminated")))
		w.next(id("terminated")).decide(&history.ExecutionCompleted{Header: action(0), Status: history.Terminated, Result: &long}).finish()
		w.equal("output", w.state(id("terminated")).Output, &long)

		later := started(id("later"), "execution of "+id("later"), nil)
		later.ScheduledStart = now().Add(24 * time.Hour)
		w.createAs(later)
		w.send(termination(id("later")))
		w.awaitStatus(id("later"), history.Terminated)
		w.equal("output", w.state(id("later")).Output, &long)
	}
}

func longIDs(w *world) {
	for _, size := range []int{5 << 10, 40 << 10, 70 << 10, 2 << 20} {
		id := strings.Repeat("x", size)
		ctx, cancel := w.patient()
		if s, err := w.p.Instance(ctx, id, provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
			w.Errorf("Instance with an ID of %d bytes returned %v, %.200v, want %v", size, s, err, provider.ErrInstanceNotFound)
		}
		if past, err := w.p.History(ctx, id); err != nil || len(past) > 0 {
			w.Errorf("History with an ID of %d bytes returned %v, %.200v, want no events", size, past, err)
		}
		if p, ok := w.p.(provider.Purger); ok {
			if err := p.Purge(ctx, id, nil); !errors.Is(err, provider.ErrInstanceNotFound) {
				w.Errorf("Purge with an ID of %d bytes returned %.200v, want %v", size, err, provider.ErrInstanceNotFound)
			}
		}
		if p, ok := w.p.(provider.Rewinder); ok {
			if err := p.Rewind(ctx, id, "why"); !errors.Is(err, provider.ErrInstanceNotFound) {
				w.Errorf("Rewind with an ID of %d bytes returned %.200v, want %v", size, err, provider.ErrInstanceNotFound)
			}
		}
		if err := w.tryCreate(started(id, "execution", nil), live); err == nil {
			w.Errorf("StartInstance accepted an ID of %d bytes", size)
		}
		if err := w.trySend(raised(id, "Event", nil)); err == nil {
			w.Errorf("Send accepted an ID of %d bytes", size)
		}
		cancel()
	}
}
