package embedded

import (
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// event codes an event: its type's number, its head and its own fields.
//
// A field that is added to an event later comes last in it and needs a new
// recordVersion, by which reading knows whether it is there.
func (c *coder) event(v *history.Event) {
	var kind byte
	if !c.Reading {
		kind = byte((*v).Type())
	}
	c.Byte(&kind)
	c.eventOf(history.EventType(kind), v)
}

// eventOf codes an event's head and fields when its type is known already.
func (c *coder) eventOf(kind history.EventType, v *history.Event) {
	if c.Err != nil {
		return
	}
	if c.Reading {
		if *v = newEvent(kind); *v == nil {
			c.Fail(fmt.Errorf("%d is no type of event", kind))
			return
		}
	}
	head := (*v).Head()
	c.Int(&head.EventID)
	c.Bool(&head.IsPlayed)
	c.Time(&head.Timestamp)
	c.eventFields(*v)
	if c.Reading && c.Err != nil {
		*v = nil
	}
}

// newEvent returns an empty event of a type, nil if there is none.
func newEvent(kind history.EventType) history.Event {
	switch kind {
	case history.TypeExecutionStarted:
		return &history.ExecutionStarted{}
	case history.TypeExecutionCompleted:
		return &history.ExecutionCompleted{}
	case history.TypeExecutionTerminated:
		return &history.ExecutionTerminated{}
	case history.TypeTaskScheduled:
		return &history.TaskScheduled{}
	case history.TypeTaskCompleted:
		return &history.TaskCompleted{}
	case history.TypeTaskFailed:
		return &history.TaskFailed{}
	case history.TypeSubOrchestrationInstanceCreated:
		return &history.SubOrchestrationInstanceCreated{}
	case history.TypeSubOrchestrationInstanceCompleted:
		return &history.SubOrchestrationInstanceCompleted{}
	case history.TypeSubOrchestrationInstanceFailed:
		return &history.SubOrchestrationInstanceFailed{}
	case history.TypeTimerCreated:
		return &history.TimerCreated{}
	case history.TypeTimerFired:
		return &history.TimerFired{}
	case history.TypeOrchestratorStarted:
		return &history.OrchestratorStarted{}
	case history.TypeOrchestratorCompleted:
		return &history.OrchestratorCompleted{}
	case history.TypeEventSent:
		return &history.EventSent{}
	case history.TypeEventRaised:
		return &history.EventRaised{}
	case history.TypeContinueAsNew:
		return &history.ContinueAsNew{}
	case history.TypeGenericEvent:
		return &history.GenericEvent{}
	case history.TypeHistoryState:
		return &history.HistoryState{}
	case history.TypeExecutionSuspended:
		return &history.ExecutionSuspended{}
	case history.TypeExecutionResumed:
		return &history.ExecutionResumed{}
	case history.TypeExecutionRewound:
		return &history.ExecutionRewound{}
	case history.TypeExecutionFailed: // a number without an event
	}
	return nil
}

func (c *coder) eventFields(v history.Event) {
	switch e := v.(type) {
	case *history.ExecutionStarted:
		c.executionStarted(e)
	case *history.ExecutionCompleted:
		c.outcome(&e.Status, &e.Result, &e.Failure)
	case *history.ContinueAsNew:
		c.outcome(&e.Status, &e.Result, &e.Failure)
	case *history.ExecutionTerminated:
		c.Text(&e.Reason)
	case *history.ExecutionSuspended:
		c.Text(&e.Reason)
	case *history.ExecutionResumed:
		c.Text(&e.Reason)
	case *history.ExecutionRewound:
		c.Text(&e.Reason)
		c.Text(&e.ParentExecutionID)
		c.Text(&e.InstanceID)
		c.trace(&e.ParentTraceContext)
	case *history.TaskScheduled:
		c.String(&e.Name)
		c.String(&e.Version)
		c.Text(&e.Input)
		c.trace(&e.ParentTraceContext)
		c.Tags(&e.Tags)
	case *history.TaskCompleted:
		c.Int(&e.TaskScheduledID)
		c.Text(&e.Result)
	case *history.TaskFailed:
		c.failed(&e.TaskScheduledID, &e.Reason, &e.Details, &e.Failure)
	case *history.SubOrchestrationInstanceCreated:
		c.String(&e.Name)
		c.String(&e.Version)
		c.String(&e.InstanceID)
		c.Text(&e.Input)
		c.Text(&e.ClientSpanID)
		c.Tags(&e.Tags)
	case *history.SubOrchestrationInstanceCompleted:
		c.Int(&e.TaskScheduledID)
		c.Text(&e.Result)
	case *history.SubOrchestrationInstanceFailed:
		c.failed(&e.TaskScheduledID, &e.Reason, &e.Details, &e.Failure)
	case *history.TimerCreated:
		c.Time(&e.FireAt)
	case *history.TimerFired:
		c.Int(&e.TimerID)
		c.Time(&e.FireAt)
	case *history.EventSent:
		c.String(&e.InstanceID)
		c.String(&e.Name)
		c.Text(&e.Input)
	case *history.EventRaised:
		c.String(&e.Name)
		c.Text(&e.Input)
		c.trace(&e.ParentTraceContext)
	case *history.GenericEvent:
		c.Text(&e.Data)
	case *history.HistoryState:
		c.Text(&e.State)
	case *history.OrchestratorStarted, *history.OrchestratorCompleted:
	default:
		c.Fail(fmt.Errorf("%T is no event of a history", v))
	}
}

func (c *coder) executionStarted(e *history.ExecutionStarted) {
	c.instance(&e.Instance)
	if c.Present(e.Parent != nil) {
		if c.Reading {
			e.Parent = &history.ParentInstance{}
		}
		c.String(&e.Parent.Name)
		c.String(&e.Parent.Version)
		c.instance(&e.Parent.Instance)
		c.Int(&e.Parent.TaskScheduleID)
	}
	c.String(&e.Name)
	c.String(&e.Version)
	c.Text(&e.Input)
	c.Tags(&e.Tags)
	c.Text(&e.Correlation)
	c.trace(&e.ParentTraceContext)
	c.Time(&e.ScheduledStart)
	if c.Present(e.Generation != nil) {
		if c.Reading {
			e.Generation = new(int)
		}
		c.Int(e.Generation)
	}
	c.Bool(&e.GenerateNewTrace)
}

func (c *coder) instance(v *history.OrchestrationInstance) {
	c.String(&v.InstanceID)
	c.String(&v.ExecutionID)
}

func (c *coder) outcome(status *history.RuntimeStatus, result **string, failure **history.FailureDetails) {
	c.status(status)
	c.Text(result)
	c.failure(failure, 0)
}

func (c *coder) status(v *history.RuntimeStatus) {
	n := int(*v)
	c.Int(&n)
	if c.Reading {
		*v = history.RuntimeStatus(n)
	}
}

func (c *coder) failed(id *int, reason, details **string, failure **history.FailureDetails) {
	c.Int(id)
	c.Text(reason)
	c.Text(details)
	c.failure(failure, 0)
}

// maxInnerFailures bounds how deep failures are nested, for reading as for
// writing: what is deeper would let damaged bytes exhaust the stack.
const maxInnerFailures = 1000

func (c *coder) failure(v **history.FailureDetails, depth int) {
	if !c.Present(*v != nil) {
		if c.Reading {
			*v = nil
		}
		return
	}
	if depth == maxInnerFailures {
		c.Fail(fmt.Errorf("failure has more than %d inner failures", maxInnerFailures))
		return
	}
	if c.Reading {
		*v = &history.FailureDetails{}
	}
	f := *v
	c.String(&f.ErrorType)
	c.String(&f.ErrorMessage)
	c.Text(&f.StackTrace)
	c.Bool(&f.IsNonRetriable)
	c.Tags(&f.Properties)
	c.failure(&f.InnerFailure, depth+1)
}

func (c *coder) trace(v **history.TraceContext) {
	if !c.Present(*v != nil) {
		if c.Reading {
			*v = nil
		}
		return
	}
	if c.Reading {
		*v = &history.TraceContext{}
	}
	t := *v
	c.String(&t.TraceParent)
	c.Text(&t.TraceState)
	c.Text(&t.ID)
	c.Text(&t.SpanID)
	c.Text(&t.ActivityStartTime)
}
