package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An intake is what an episode takes of a batch of messages.
type intake struct {
	// start is the execution's first event, from its history or from the batch;
	// nil if there is nothing to run.
	start *history.ExecutionStarted
	// events are the messages' events, in order.
	events []history.Event
	// dropped are the messages that the next checkpoint deletes unread.
	dropped []droppedMessage
	// refused are the starts among them that fail in their parents.
	refused []refusedStart
}

type droppedMessage struct {
	message provider.TaskMessage
	reason  string
}

// reconcile matches messages with the state of the instance they are for
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, ReconcileMessagesWithState).
// Past is the execution's history; start is its ExecutionStarted, nil if there
// is none there.
//
//  1. A history without its beginning takes no messages at all.
//  2. An execution begins with ExecutionStarted: if the first message is
//     another, all are dropped.
//  3. A second ExecutionStarted is dropped. If it is that of another child, it
//     fails in its parent.
//  4. A message that names another execution than the current one is dropped.
//     One that names none is for the current one. So are events for an execution
//     that is to follow it.
//
// Beyond DurableTask, where the storage provider sees to it:
//
//  5. An execution that has ended takes no messages. The start of another child
//     with its ID is not for it, but begins a new execution.
//
// Everything else is kept, duplicates too: replay ignores what completes
// nothing, and the history shows that it came.
func reconcile(start *history.ExecutionStarted, past []history.Event, messages []provider.TaskMessage) (intake, error) {
	in := intake{start: start}
	if refusal := refusesAll(start, past, messages); refusal != "" {
		for _, m := range messages {
			if start != nil && meetsAnother(start, m) {
				return intake{}, fmt.Errorf("a child is started with the ID of an instance that has ended, and the work item has its history")
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
		case isStart && in.start != nil && meetsAnother(in.start, m):
			in.drop(m, "start of a child with the ID of an instance that goes on; its parent is told")
			in.refused = append(in.refused, refusedStart{started})
			continue
		case isStart && in.start != nil:
			in.drop(m, "duplicate start")
			continue
		case isStart:
			in.start = started
		case in.isForAnother(m):
			in.drop(m, fmt.Sprintf("it is for execution %s, the current one is %s", m.Target.ExecutionID, in.start.Instance.ExecutionID))
			continue
		}
		in.events = append(in.events, m.Event)
	}
	return in, nil
}

// refusesAll returns why no message of the batch can be taken, empty if one may.
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

func (in *intake) isForAnother(m provider.TaskMessage) bool {
	id := strings.TrimSpace(m.Target.ExecutionID)
	if id == "" || id == in.start.Instance.ExecutionID {
		return false
	}
	_, isEvent := m.Event.(*history.EventRaised)
	return !isEvent || !isToFollow(in.start.Instance, id)
}

// isToFollow reports whether i will continue as new with an execution of the given
// ID. That has run before, in an episode whose checkpoint was lost. Events for it are
// not for i, which carries them over unread.
func isToFollow(i history.OrchestrationInstance, id string) bool {
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

// refusals returns the messages by which refused children fail in their parents. The
// instance that has the child's ID goes on. The parent of a fire-and-forget child
// gets none.
//
// DurableTask replaces the instance that goes on, and that one's parent waits for
// ever.
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
