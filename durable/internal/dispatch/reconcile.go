package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An intake is the part of a batch of messages that an episode takes.
type intake struct {
	// start is the execution's first event, from its history or from the batch. It is nil if
	// refusesAll drops the whole batch.
	start *history.ExecutionStarted
	// events are the events of the messages, in order.
	events []history.Event
	// dropped are the messages that the next checkpoint deletes unread.
	dropped []droppedMessage
	// refused are the dropped starts that fail in their parents.
	refused []refusedStart
	// wakes is set if a message wakes the instance to run its unrecorded steps and polls.
	wakes bool
	// polls maps the task IDs of the polls that messages of [provider.WakePolls] wake to the due times of
	// these messages.
	polls map[int]time.Time
}

// wakePolls records a message of [provider.WakePolls]. If two messages wake one poll, the earlier due time
// counts.
func (in *intake) wakePolls(due time.Time, ids []int) {
	if in.polls == nil {
		in.polls = make(map[int]time.Time)
	}
	for _, id := range ids {
		if at, ok := in.polls[id]; !ok || due.Before(at) {
			in.polls[id] = due
		}
	}
}

// wakesPoll reports whether the delivery wakes a poll that waits without a session.
func (in *intake) wakesPoll(step *replay.RunStep) bool {
	_, ok := in.polls[step.ID]
	return ok || in.wakes
}

// isDue reports whether a poll must run now. It must if it is new, if its wake-up is due by the worker's
// clock, or if a message wakes all steps.
func (in *intake) isDue(step *replay.RunStep, now time.Time) bool {
	_, last, _ := step.PollAt(now)
	return in.wakes || !last.Before(in.polls[step.ID])
}

type droppedMessage struct {
	message provider.TaskMessage
	reason  string
}

// reconcile selects the messages that the execution of an instance can take
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, ReconcileMessagesWithState). Past is the
// execution's history. Start is its ExecutionStarted, or nil if past has none.
//
//  1. If past lacks its ExecutionStarted, all messages are dropped.
//  2. Without a history, if the first message is not an ExecutionStarted, all messages are
//     dropped.
//  3. A second ExecutionStarted is dropped. If it starts another child, it fails in its parent.
//     Otherwise it wakes the instance, like a message of [provider.WakeSteps].
//  4. A message for another execution is dropped. A message without an execution ID is for the
//     current execution. The current execution also takes events for an execution that follows
//     it, and carries them over; see follows.
//
// DurableTask leaves the following to the storage provider:
//
//  5. An execution that has ended takes no messages. The start of another child with its ID does not
//     belong to it, but starts a new execution. The provider must deliver that start without the
//     history of the ended execution; otherwise reconcile returns an error.
//
// All other messages are taken, including duplicates: replay ignores completions of actions
// that are not open, and the history shows that they arrived. A message without an instance ID
// is an error.
func reconcile(start *history.ExecutionStarted, past []history.Event, messages []provider.TaskMessage) (intake, error) {
	in := intake{start: start}
	if refusal := refusesAll(start, past, messages); refusal != "" {
		for _, m := range messages {
			if start != nil && startsAnother(start, m) {
				return intake{}, fmt.Errorf("the work item starts a child but contains the history of another instance with its ID, which has ended")
			}
			in.drop(m, refusal)
		}
		in.start = nil
		return in, nil
	}
	for _, m := range messages {
		if strings.TrimSpace(m.Target.InstanceID) == "" {
			return intake{}, fmt.Errorf("message %v names no instance", m.Event.Type())
		}
		started, isStart := m.Event.(*history.ExecutionStarted)
		switch {
		case isStart && in.start != nil && startsAnother(in.start, m):
			in.drop(m, "start of a child whose ID belongs to a running instance; its parent is notified")
			in.refused = append(in.refused, refusedStart{started})
			continue
		case isStart && in.start != nil:
			in.wakes = in.wakes || started.Instance == in.start.Instance
			in.drop(m, "duplicate start")
			continue
		case isStart:
			in.start = started
		case in.isForOtherExecution(m):
			in.drop(m, fmt.Sprintf("it is for execution %s; the current execution is %s", m.Target.ExecutionID, in.start.Instance.ExecutionID))
			continue
		case m.WakesSteps():
			in.wakes = true
			continue
		}
		if due, ids := m.WokenPolls(); ids != nil {
			in.wakePolls(due, ids)
			continue
		}
		switch m.Event.(type) {
		case *history.ExecutionResumed, *history.GenericEvent: // no wake-up is stored, or a rewind has removed it
			in.wakes = true
		}
		in.events = append(in.events, m.Event)
	}
	return in, nil
}

// refusesAll returns the reason why all messages must be dropped, or "" if one may be taken.
func refusesAll(start *history.ExecutionStarted, past []history.Event, messages []provider.TaskMessage) string {
	if start == nil && len(past) > 0 {
		return "the history has no ExecutionStarted"
	}
	if start == nil && len(messages) > 0 && messages[0].Event.Type() != history.TypeExecutionStarted {
		return "no such instance"
	}
	for i := len(past) - 1; i >= 0; i-- {
		if end, ok := past[i].(*history.ExecutionCompleted); ok {
			return "the instance is " + end.Status.String()
		}
	}
	return ""
}

func (in *intake) isForOtherExecution(m provider.TaskMessage) bool {
	id := strings.TrimSpace(m.Target.ExecutionID)
	if id == "" || id == in.start.Instance.ExecutionID {
		return false
	}
	_, isEvent := m.Event.(*history.EventRaised)
	return !isEvent || !follows(in.start.Instance, id)
}

// follows reports whether i will continue as new with an execution of the given ID. That execution has run
// before, in an episode whose checkpoint was lost. Execution i does not read the events for that execution,
// and carries them over.
func follows(i history.OrchestrationInstance, id string) bool {
	for range maxGenerations {
		if i.ExecutionID = nextExecutionID(i); i.ExecutionID == id {
			return true
		}
	}
	return false
}

func (in *intake) drop(m provider.TaskMessage, reason string) {
	in.dropped = append(in.dropped, droppedMessage{m, reason})
}

// refusals returns the messages that fail refused children in their parents. The instance that
// owns the child's ID continues. The parent of a fire-and-forget child receives no message.
//
// DurableTask replaces the running instance, whose parent then waits forever.
func (in *intake) refusals(now time.Time) []provider.TaskMessage {
	var messages []provider.TaskMessage
	for _, r := range in.refused {
		if _, ok := r.start.Tags[history.FireAndForget]; ok {
			continue
		}
		exists := &provider.InstanceExistsError{InstanceID: r.start.Instance.InstanceID, Status: history.Running}
		failure := &history.FailureDetails{
			ErrorType:    provider.InstanceExistsFailure,
			ErrorMessage: fmt.Sprintf("%s Its ID is %s.", exists, r.start.Instance.InstanceID),
			Properties: map[string]string{
				"InstanceID": fmt.Sprintf("%q", exists.InstanceID),
				"Status":     fmt.Sprintf("%d", exists.Status),
			},
		}
		messages = append(messages, provider.TaskMessage{
			Event: &history.SubOrchestrationInstanceFailed{
				Header: history.NewHeader(now), TaskScheduledID: r.start.Parent.TaskScheduleID,
				Reason: &failure.ErrorMessage, Failure: failure,
			},
			Target: r.start.Parent.Instance,
		})
	}
	return messages
}
