package providertest

import (
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// live are the statuses of instances that have not ended. A client refuses to
// start them again.
var live = []history.RuntimeStatus{history.Running, history.ContinuedAsNew, history.Pending, history.Suspended}

func started(id, executionID string, input *string) *history.ExecutionStarted {
	return &history.ExecutionStarted{
		Header:   history.NewHeader(now()),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: executionID},
		Name:     "Orchestrator",
		Input:    input,
	}
}

// to returns an event as a message for an instance, whichever execution it has.
func to(id string, e history.Event) provider.TaskMessage {
	return provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: id}}
}

func raised(id, name string, input *string) provider.TaskMessage {
	return to(id, &history.EventRaised{Header: history.NewHeader(now()), Name: name, Input: input})
}

func completed(task int, result *string) *history.TaskCompleted {
	return &history.TaskCompleted{Header: history.NewHeader(now()), TaskScheduledID: task, Result: result}
}

// create starts an instance, whose execution is named after it.
func (w *world) create(id string) history.OrchestrationInstance {
	w.Helper()
	return w.createAs(started(id, "execution of "+id, text(`"input"`)))
}

func (w *world) createAs(start *history.ExecutionStarted) history.OrchestrationInstance {
	w.Helper()
	w.must("StartInstance", w.tryCreate(start, live))
	return start.Instance
}

// tryCreate starts an instance unless it is in a status of refuse. Unlike
// create, it may be called by other goroutines than the test's.
func (w *world) tryCreate(start *history.ExecutionStarted, refuse []history.RuntimeStatus) error {
	ctx, cancel := w.patient()
	defer cancel()
	return w.p.StartInstance(ctx, provider.TaskMessage{Event: start, Target: start.Instance}, refuse)
}

// begin starts an instance and commits an episode that takes its start.
func (w *world) begin(id string) history.OrchestrationInstance {
	w.Helper()
	instance := w.create(id)
	w.next(id).finish()
	return instance
}

func (w *world) send(m provider.TaskMessage) {
	w.Helper()
	w.must("Send", w.trySend(m))
}

// trySend sends a message. Unlike send, it may be called by other goroutines
// than the test's.
func (w *world) trySend(m provider.TaskMessage) error {
	ctx, cancel := w.patient()
	defer cancel()
	return w.p.Send(ctx, m)
}

func (w *world) state(id string) *provider.InstanceState {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	s, err := w.p.Instance(ctx, id, provider.Fetch{Input: true, Output: true})
	w.must("Instance", err)
	return s
}

func (w *world) history(id string) []history.Event {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	past, err := w.p.History(ctx, id)
	w.must("History", err)
	return past
}

// collect takes work items of an instance, and commits them, until n messages
// have come that are not repeated. It returns them in the order in which they
// came, without the start.
func (w *world) collect(id string, n int) []provider.TaskMessage {
	w.Helper()
	var all []provider.TaskMessage
	for len(all) < n {
		e := w.next(id)
		for _, m := range e.fresh {
			repeated := slices.ContainsFunc(all, func(o provider.TaskMessage) bool { return fingerprint(o) == fingerprint(m) })
			if m.Event.Type() != history.TypeExecutionStarted && !repeated {
				all = append(all, m)
			}
		}
		e.finish()
	}
	return all
}

// complete completes an activity.
func (w *world) complete(a *provider.ActivityWorkItem, result history.Event) {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	w.must("Complete", a.Lock.Complete(ctx, result))
}
