package dispatch

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// record adds to cp what the execution with the given start decided at now. It adds an event
// for each action, in order, and the messages that carry them out
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, Process…Decision).
//
// If the last action completes the execution, record returns it. It does not record a
// continue-as-new, which replaces the history.
//
// Messages contain the inputs of activities and children. The history contains them only if
// storeInputs is set (TaskOrchestrationDispatcher.IncludeParameters).
func record(cp *provider.Checkpoint, start *history.ExecutionStarted, actions []replay.Action, storeInputs bool, now time.Time) (*replay.Complete, error) {
	for i, a := range actions {
		head := history.Header{EventID: a.ActionID(), Timestamp: history.TruncateToTicks(now)}
		switch a := a.(type) {
		case *replay.ScheduleTask:
			recordTask(cp, start, a, storeInputs, head)
		case *replay.CreateTimer:
			recordTimer(cp, start, a, head)
		case *replay.CreateSubOrchestration:
			recordChild(cp, start, a, storeInputs, head)
		case *replay.SendEvent:
			recordEvent(cp, a, head)
		case *replay.Complete:
			if i != len(actions)-1 {
				return nil, fmt.Errorf("action %d completes the execution and is followed by %d more", a.ID, len(actions)-1-i)
			}
			if a.Status != history.ContinuedAsNew {
				recordEnd(cp, start, a, head)
			}
			return a, nil
		default:
			return nil, fmt.Errorf("action %d is an unknown %T", a.ActionID(), a)
		}
	}
	return nil, nil
}

func recordTask(cp *provider.Checkpoint, start *history.ExecutionStarted, a *replay.ScheduleTask, keepInput bool, head history.Header) {
	recorded := &history.TaskScheduled{Header: head, Name: a.Name, Version: a.Version, Tags: a.Tags}
	sent := new(*recorded)
	sent.Input = a.Input
	if keepInput {
		recorded.Input = a.Input
	}
	cp.NewEvents = append(cp.NewEvents, recorded)
	cp.Activities = append(cp.Activities, provider.TaskMessage{Event: sent, Target: start.Instance, Tags: start.Tags})
}

// scheduledStep returns the event that records a step.
func scheduledStep(a *replay.RunStep) *history.TaskScheduled {
	return &history.TaskScheduled{Header: history.Header{EventID: a.ID, Timestamp: history.TruncateToTicks(a.DecidedAt)}, Name: a.Name, Version: a.Version}
}

func recordTimer(cp *provider.Checkpoint, start *history.ExecutionStarted, a *replay.CreateTimer, head history.Header) {
	at := history.TruncateToTicks(a.FireAt)
	fired := &history.TimerFired{Header: history.NewHeader(head.Timestamp), TimerID: a.ID, FireAt: at}
	cp.NewEvents = append(cp.NewEvents, &history.TimerCreated{Header: head, FireAt: at})
	cp.Timers = append(cp.Timers, provider.TaskMessage{Event: fired, Target: start.Instance})
}

// recordChild starts a child. Its execution ID, and its instance ID if none was chosen, are derived from the
// parent's execution and the action. Receivers therefore recognize a start that is sent again after a crash.
// DurableTask derives only the instance ID, and generates a new execution ID each time.
func recordChild(cp *provider.Checkpoint, start *history.ExecutionStarted, a *replay.CreateSubOrchestration, keepInput bool, head history.Header) {
	tags := mergeTags(a.Tags, start.Tags)
	child := history.OrchestrationInstance{InstanceID: a.InstanceID, ExecutionID: childExecutionID(start.Instance, a.ID)}
	if child.InstanceID == "" {
		child.InstanceID = fmt.Sprintf("%s:%d", start.Instance.ExecutionID, a.ID)
	}
	created := &history.SubOrchestrationInstanceCreated{Header: head, Name: a.Name, Version: a.Version, InstanceID: child.InstanceID, Tags: tags}
	if keepInput {
		created.Input = a.Input
	}
	cp.NewEvents = append(cp.NewEvents, created)
	cp.Messages = append(cp.Messages, provider.TaskMessage{
		Event: &history.ExecutionStarted{
			Header:   history.NewHeader(head.Timestamp),
			Instance: child,
			Parent: &history.ParentInstance{
				Name: start.Name, Version: start.Version, Instance: start.Instance, TaskScheduleID: a.ID,
			},
			Name:    a.Name,
			Version: a.Version,
			Input:   a.Input,
			Tags:    tags,
		},
		Target: child,
		Tags:   start.Tags,
	})
}

func recordEvent(cp *provider.Checkpoint, a *replay.SendEvent, head history.Header) {
	cp.NewEvents = append(cp.NewEvents, &history.EventSent{Header: head, InstanceID: a.InstanceID, Name: a.Name, Input: a.Input})
	cp.Messages = append(cp.Messages, provider.TaskMessage{
		Event:  &history.EventRaised{Header: history.NewHeader(head.Timestamp), Name: a.Name, Input: a.Input},
		Target: history.OrchestrationInstance{InstanceID: a.InstanceID},
	})
}

func recordEnd(cp *provider.Checkpoint, start *history.ExecutionStarted, a *replay.Complete, head history.Header) {
	cp.NewEvents = append(cp.NewEvents, &history.ExecutionCompleted{Header: head, Status: a.Status, Result: a.Result, Failure: a.Failure})
	if e := parentEvent(start, a, head.Timestamp); e != nil {
		// The target names the parent's execution. A later execution of the parent therefore
		// ignores the message.
		cp.Messages = append(cp.Messages, provider.TaskMessage{Event: e, Target: start.Parent.Instance})
	}
}

// parentEvent returns the event that reports an execution's end to its parent, or nil if no
// parent is waiting (DurableTask.Core/TaskOrchestrationDispatcher.cs,
// ProcessWorkflowCompletedTaskDecision).
func parentEvent(start *history.ExecutionStarted, a *replay.Complete, at time.Time) history.Event {
	if start.Parent == nil {
		return nil
	}
	if _, ok := start.Tags[history.FireAndForget]; ok {
		return nil
	}
	head := history.NewHeader(at)
	switch a.Status {
	case history.Completed:
		return &history.SubOrchestrationInstanceCompleted{Header: head, TaskScheduledID: start.Parent.TaskScheduleID, Result: a.Result}
	case history.Failed, history.Terminated:
		return &history.SubOrchestrationInstanceFailed{
			Header: head, TaskScheduledID: start.Parent.TaskScheduleID, Reason: a.Result, Failure: a.Failure,
		}
	case history.Canceled, history.Running, history.ContinuedAsNew, history.Pending, history.Suspended:
	}
	return nil
}

// mergeTags returns a child's tags: its own, and the tags of its parent with other names. The
// parent's FireAndForget tag is not inherited (DurableTask.Core/OrchestrationTags.cs,
// MergeTags).
func mergeTags(own, parents map[string]string) map[string]string {
	if parents == nil {
		return own
	}
	merged := make(map[string]string, len(own)+len(parents))
	for k, v := range parents {
		if k != history.FireAndForget {
			merged[k] = v
		}
	}
	for k, v := range own {
		merged[k] = v
	}
	return merged
}

// childSpace is the namespace of the execution IDs of children and of next executions. It makes
// them differ from all other derived GUIDs.
var childSpace = uuid.MustParse("5b7b5c1e-5f0b-5a55-8d0b-3a4c1c7d9e21")

// nextExecutionID returns the ID of the next execution after i continues as new. It is derived
// from the ID of i. If an episode runs again after a crash, its generations therefore send
// their messages with the same execution IDs. DurableTask generates a new ID each time, and
// receivers cannot recognize duplicates.
func nextExecutionID(i history.OrchestrationInstance) string {
	id := uuid.NewSHA1(childSpace, []byte(i.ExecutionID+"/next/"+i.InstanceID))
	return fmt.Sprintf("%x", id[:])
}

func childExecutionID(parent history.OrchestrationInstance, actionID int) string {
	name := fmt.Sprintf("%s/%d/%s", parent.ExecutionID, actionID, parent.InstanceID)
	id := uuid.NewSHA1(childSpace, []byte(name))
	return fmt.Sprintf("%x", id[:])
}
