package providertest

import (
	"context"
	"fmt"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var messages = area{"messages", []test{
	{"a message is dispatched to its target instance", running(messageArrives)},
	{"all messages of several senders are dispatched", running(severalSenders)},
	{"events sent before the start was dispatched are kept", running(eventsBeforeStart)},
	{"a message for a specific execution reaches it", running(namedExecution)},
	{"a message for an unknown instance has no effect on other instances", running(unknownTarget)},
	{"every type of message arrives unchanged", running(everyKind)},
	{"a sender whose context has ended gets an error, or its message is delivered", running(cancelledSender)},
}}

func messageArrives(w *world) {
	w.begin("a")
	event := raised("a", "Event", text(`{"n":1}`))
	w.send(event)
	e := w.next("a")
	w.equal("messages", e.item.Messages, []provider.TaskMessage{event})
	e.finish()
	w.quiet("its event was committed")
}

func severalSenders(w *world) {
	const senders, each = 5, 8
	w.begin("a")
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				if err := w.trySend(raised("a", fmt.Sprintf("sender %d", s), text(fmt.Sprint(i)))); err != nil {
					w.Errorf("sender %d: %v", s, err)
				}
			}
		})
	}
	got := make(map[string]int)
	for _, m := range w.collect("a", senders*each) {
		got[fingerprint(m)]++
	}
	all.Wait()
	w.equal("number of different messages", len(got), senders*each)
}

func eventsBeforeStart(w *world) {
	instance := w.create("a")
	early := []provider.TaskMessage{raised("a", "first", text("1")), raised("a", "second", nil)}
	early[1].Target = instance
	for _, m := range early {
		w.send(m)
	}
	got := w.collect("a", len(early))
	w.equal("number of messages", len(got), len(early))
	for _, m := range early {
		if !containsMessage(got, m) {
			w.Errorf("%s was lost", fingerprint(m))
		}
	}
}

func containsMessage(all []provider.TaskMessage, m provider.TaskMessage) bool {
	for _, o := range all {
		if fingerprint(o) == fingerprint(m) {
			return true
		}
	}
	return false
}

func namedExecution(w *world) {
	instance := w.begin("a")
	event := raised("a", "Event", nil)
	event.Target = instance
	w.send(event)
	e := w.next("a")
	w.equal("messages", e.item.Messages, []provider.TaskMessage{event})
	e.finish()
}

func unknownTarget(w *world) {
	w.send(raised("nobody", "Event", nil))
	w.send(to("nobody", &history.ExecutionTerminated{Header: history.NewHeader(now()), Reason: text("why")}))
	w.discardUntilQuiet(func(e *episode) {
		w.equal("instance", e.item.Instance.InstanceID, "nobody")
		w.equal("history", e.item.History, []history.Event(nil))
	})
	w.quiet("the messages were discarded")
	w.begin("a") // other instances still work
	w.equal("history of the unknown instance", w.history("nobody"), []history.Event(nil))
}

// everyKind sends every type of message to an instance that waits for an activity, a child and
// a timer.
func everyKind(w *world) {
	instance := w.create("a")
	e := w.next("a")
	e.decide(
		&history.TaskScheduled{Header: action(0), Name: "Activity"},
		&history.TaskScheduled{Header: action(1), Name: "Activity"},
		&history.SubOrchestrationInstanceCreated{Header: action(2), Name: "Child", InstanceID: "child 2"},
		&history.SubOrchestrationInstanceCreated{Header: action(3), Name: "Child", InstanceID: "child 3"},
	)
	e.finish()
	failure := &history.FailureDetails{
		ErrorType: "Error", ErrorMessage: "it broke", StackTrace: text("at line 1\nat line 2"), IsNonRetriable: true,
		InnerFailure: &history.FailureDetails{ErrorType: "Inner", ErrorMessage: "why"},
	}
	head := history.NewHeader(now())
	var want []provider.TaskMessage
	for _, event := range []history.Event{
		&history.TaskCompleted{Header: head, TaskScheduledID: 0, Result: text(`"ünïcode 世界 \u2028 😀"`)},
		&history.TaskFailed{Header: head, TaskScheduledID: 1, Reason: text("it broke"), Failure: failure},
		&history.SubOrchestrationInstanceCompleted{Header: head, TaskScheduledID: 2},
		&history.SubOrchestrationInstanceFailed{Header: head, TaskScheduledID: 3, Reason: text(""), Failure: failure},
		&history.EventRaised{Header: head, Name: "an event", Input: text("")},
		&history.EventRaised{Header: head, Name: "without input"},
		&history.ExecutionSuspended{Header: head, Reason: text("wait")},
		&history.ExecutionResumed{Header: head},
		&history.GenericEvent{Header: head, Data: text("data")},
		&history.ExecutionTerminated{Header: head, Reason: text("enough")},
	} {
		m := provider.TaskMessage{Event: event, Target: instance}
		w.send(m)
		want = append(want, m)
	}
	got := w.collect("a", len(want))
	for _, m := range want {
		if !containsMessage(got, m) {
			w.Errorf("%s did not arrive as it was sent; got\n%s", fingerprint(m), fingerprints(got))
		}
	}
}

func fingerprints(all []provider.TaskMessage) string {
	s := ""
	for _, m := range all {
		s += "\t" + fingerprint(m) + "\n"
	}
	return s
}

func cancelledSender(w *world) {
	w.begin("a")
	ended, cancel := context.WithCancel(w.Context())
	cancel()
	event := raised("a", "doubtful", nil)
	if err := w.p.Send(ended, event); err == nil {
		w.equal("messages", w.collect("a", 1), []provider.TaskMessage{event})
		return
	}
	after := raised("a", "certain", nil)
	w.send(after)
	for !containsMessage(w.collect("a", 1), after) { // the event whose Send failed may come first
		continue
	}
}
