package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// episode is a work item with the checkpoint that the test builds for it.
type episode struct {
	w    *world
	item *provider.OrchestrationWorkItem
	// past is the history of the execution; fresh holds the messages that are not committed to
	// it yet.
	past  []history.Event
	fresh []provider.TaskMessage
	cp    *provider.Checkpoint
}

func text(s string) *string { return &s }

// now returns the current time in the resolution of events.
func now() time.Time { return history.TruncateToTicks(time.Now()) }

// checkOrder reports completions that are dispatched before the history has the event that
// scheduled the work.
func (e *episode) checkOrder(messages []provider.TaskMessage) {
	e.w.Helper()
	for _, m := range messages {
		id, ok := history.Completes(m.Event)
		if !ok || m.Target.ExecutionID != "" && m.Target.ExecutionID != e.item.Instance.ExecutionID {
			continue // the engine discards messages for another execution
		}
		if !slices.ContainsFunc(e.past, func(past history.Event) bool { return past.Head().EventID == id }) {
			e.w.Errorf("%v of event %d was dispatched to %q before the history has that event", m.Event.Type(), id, e.item.Instance.InstanceID)
		}
	}
}

// isRepeated reports whether all messages were committed before.
func (e *episode) isRepeated() bool {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	for _, m := range e.fresh {
		if !e.w.consumed[fingerprint(m)] {
			return false
		}
	}
	return len(e.fresh) > 0
}

// checkpoint returns the checkpoint of the episode, which consumes all messages.
func (e *episode) checkpoint() *provider.Checkpoint {
	if e.cp == nil {
		e.cp = &provider.Checkpoint{Instance: e.item.Instance}
		e.cp.NewEvents = append(e.cp.NewEvents, &history.OrchestratorStarted{Header: history.NewHeader(now())})
		for _, m := range e.fresh {
			e.cp.NewEvents = append(e.cp.NewEvents, m.Event)
		}
	}
	return e.cp
}

// decide adds events to the checkpoint.
func (e *episode) decide(events ...history.Event) *episode {
	cp := e.checkpoint()
	cp.NewEvents = append(cp.NewEvents, events...)
	return e
}

func action(id int) history.Header { return history.Header{EventID: id, Timestamp: now()} }

// schedule adds an activity to the checkpoint.
func (e *episode) schedule(id int, name string, input *string) *episode {
	e.decide(&history.TaskScheduled{Header: action(id), Name: name})
	e.cp.Activities = append(e.cp.Activities, provider.TaskMessage{
		Event:  &history.TaskScheduled{Header: action(id), Name: name, Input: input},
		Target: e.cp.Instance,
	})
	return e
}

// timer adds a timer to the checkpoint.
func (e *episode) timer(id int, at time.Time) *episode {
	at = history.TruncateToTicks(at)
	e.decide(&history.TimerCreated{Header: action(id), FireAt: at})
	e.cp.Timers = append(e.cp.Timers, provider.TaskMessage{
		Event:  &history.TimerFired{Header: history.NewHeader(now()), TimerID: id, FireAt: at},
		Target: e.cp.Instance,
	})
	return e
}

// raise adds an event for an instance to the checkpoint.
func (e *episode) raise(id int, to, name string, input *string) *episode {
	e.decide(&history.EventSent{Header: action(id), InstanceID: to, Name: name, Input: input})
	e.cp.Messages = append(e.cp.Messages, raised(to, name, input))
	return e
}

// end adds the end of the execution to the checkpoint.
func (e *episode) end(status history.RuntimeStatus, output *string) *episode {
	return e.decide(&history.ExecutionCompleted{Header: action(1000), Status: status, Result: output})
}

// continueAsNew replaces the checkpoint by one that begins a new execution.
func (e *episode) continueAsNew(executionID string, input *string) *episode {
	before := e.checkpoint()
	start := started(e.item.Instance.InstanceID, executionID, input)
	e.cp = &provider.Checkpoint{
		Instance:       start.Instance,
		ContinuedAsNew: true,
		Activities:     before.Activities,
		Timers:         before.Timers,
		Messages:       before.Messages,
		NewEvents:      []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(now())}, start},
	}
	return e
}

// withSteps makes the checkpoint one that leaves steps running.
func (e *episode) withSteps() *episode {
	e.checkpoint().StepsRunning = true
	return e
}

// custom sets the custom status.
func (e *episode) custom(status *string) *episode {
	e.checkpoint().CustomStatus = status
	return e
}

// keepCustom makes the checkpoint keep the custom status. The status in it is ignored.
func (e *episode) keepCustom() *episode {
	e.checkpoint().CustomStatus, e.checkpoint().KeepCustomStatus = text(`"ignored"`), true
	return e
}

// tryCommit adds an OrchestratorCompleted and commits the checkpoint.
func (e *episode) tryCommit(ctx context.Context) error {
	cp := e.checkpoint()
	closing := &history.OrchestratorCompleted{Header: history.NewHeader(now())}
	closing.IsPlayed = cp.StepsRunning // the engine does so if steps are unrecorded
	cp.NewEvents = append(cp.NewEvents, closing)
	err := e.item.Session.Commit(ctx, cp)
	if err == nil {
		e.committed()
	}
	return err
}

// committed updates the model after a successful commit.
func (e *episode) committed() {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.cp.ContinuedAsNew {
		e.past = nil
	}
	e.past = slices.Concat(e.past, e.cp.NewEvents)
	w.histories[e.cp.Instance] = e.past
	for _, m := range e.fresh {
		w.consumed[fingerprint(m)] = true
	}
	e.cp, e.fresh = nil, nil
}

// commit commits the checkpoint and keeps the lock.
func (e *episode) commit() *episode {
	e.w.Helper()
	ctx, cancel := e.w.patient()
	defer cancel()
	e.w.must(fmt.Sprintf("commit checkpoint of %q", e.item.Instance.InstanceID), e.tryCommit(ctx))
	return e
}

// finish commits the checkpoint and releases the lock.
func (e *episode) finish() {
	e.w.Helper()
	e.commit().release()
}

// release releases the lock.
func (e *episode) release() {
	e.w.Helper()
	e.w.mu.Lock()
	delete(e.w.held, e.item.Instance.InstanceID)
	e.w.mu.Unlock()
	ctx, cancel := e.w.patient()
	defer cancel()
	e.w.must("Release", e.item.Session.Release(ctx))
}

// abandon abandons the messages and releases the lock.
func (e *episode) abandon() {
	e.w.Helper()
	ctx, cancel := e.w.patient()
	defer cancel()
	e.w.must("Abandon", e.item.Session.Abandon(ctx, errAbandoned))
	e.release()
}

var errAbandoned = fmt.Errorf("abandoned by the test")

// discard commits an empty checkpoint, which deletes the messages, and releases the lock.
func (e *episode) discard() {
	e.w.Helper()
	ctx, cancel := e.w.patient()
	defer cancel()
	e.w.must("commit an empty checkpoint", e.item.Session.Commit(ctx, &provider.Checkpoint{Instance: e.item.Instance}))
	e.release()
}

// rest commits a checkpoint without events that sends the wake-up of polls, and releases the lock.
func (e *episode) rest(due time.Time, ids ...int) {
	e.w.Helper()
	cp := &provider.Checkpoint{Instance: e.item.Instance, Messages: []provider.TaskMessage{provider.WakePolls(e.item.Instance, due, ids)}}
	ctx, cancel := e.w.patient()
	defer cancel()
	e.w.must("commit the wake-up of polls", e.item.Session.Commit(ctx, cp))
	e.release()
}

// more waits for further messages with Session.Next.
func (e *episode) more(idle time.Duration) []provider.TaskMessage {
	e.w.Helper()
	ctx, cancel := context.WithTimeout(e.w.Context(), idle+e.w.hub.Patience)
	defer cancel()
	messages, err := e.item.Session.Next(ctx, idle)
	e.w.must("Session.Next", err)
	e.checkOrder(messages)
	e.w.mu.Lock()
	e.onlyOnce(messages)
	e.w.mu.Unlock()
	e.fresh = append(e.fresh, messages...)
	return messages
}

// child adds the start of a child to the checkpoint.
func (e *episode) child(id int, start provider.TaskMessage) *episode {
	e.decide(&history.SubOrchestrationInstanceCreated{Header: action(id), Name: "Orchestrator", InstanceID: start.Target.InstanceID})
	e.cp.Messages = append(e.cp.Messages, start)
	return e
}

// setEntityState makes the checkpoint one of an entity: the entity continues as new, and the input of
// the new execution is its state.
func (e *episode) setEntityState(executionID, state string) *episode {
	id := e.item.Instance.InstanceID
	messages := e.checkpoint().Messages
	start := started(id, executionID, &state)
	start.Name = id
	e.cp = &provider.Checkpoint{
		Instance: start.Instance, ContinuedAsNew: true, SendLast: true, CustomStatus: text(`{"entityExists":true}`), Messages: messages,
		NewEvents: []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(now())}, start},
	}
	return e
}

// addMessage adds a message to the checkpoint.
func (e *episode) addMessage(m provider.TaskMessage) *episode {
	cp := e.checkpoint()
	cp.Messages = append(cp.Messages, m)
	return e
}

// tryFinish commits the checkpoint and releases the lock. It reports whether the commit
// succeeded; a lost session is not an error.
func (e *episode) tryFinish() bool {
	ctx, cancel := e.w.patient()
	defer cancel()
	err := e.tryCommit(ctx)
	if err != nil && !errors.Is(err, provider.ErrSessionLost) {
		e.w.Errorf("commit: %v", err)
	}
	e.release()
	return err == nil
}

// arrive waits until n messages have arrived through Session.Next. The session must not end
// before.
func (e *episode) arrive(n int) {
	e.w.Helper()
	for len(e.fresh) < n {
		began := time.Now()
		if len(e.more(e.w.hub.Patience)) == 0 {
			e.w.Fatalf("%d of %d messages arrived through Next; then it returned none after %v", len(e.fresh), n, time.Since(began))
		}
	}
}

// onlyOnce reports messages that were committed before, if the provider is exact.
func (e *episode) onlyOnce(messages []provider.TaskMessage) {
	e.w.Helper()
	if !e.w.isExact() {
		return
	}
	for _, m := range messages {
		if id := fingerprint(m); e.w.consumed[id] && !e.w.resent[id] {
			e.w.Errorf("an exact provider dispatched %q with a message that was committed before: %s", e.item.Instance.InstanceID, fingerprint(m))
		}
	}
}
