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
	if !c.reading {
		kind = byte((*v).Type())
	}
	c.byte(&kind)
	c.eventOf(history.EventType(kind), v)
}

// eventOf codes an event's head and fields when its type is known already.
func (c *coder) eventOf(kind history.EventType, v *history.Event) {
	if c.err != nil {
		return
	}
	if c.reading {
		if *v = newEvent(kind); *v == nil {
			c.fail(fmt.Errorf("%d is no type of event", kind))
			return
		}
	}
	head := (*v).Head()
	c.int(&head.EventID)
	c.bool(&head.IsPlayed)
	c.time(&head.Timestamp)
	c.eventFields(*v)
	if c.reading && c.err != nil {
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
		c.text(&e.Reason)
	case *history.ExecutionSuspended:
		c.text(&e.Reason)
	case *history.ExecutionResumed:
		c.text(&e.Reason)
	case *history.ExecutionRewound:
		c.text(&e.Reason)
		c.text(&e.ParentExecutionID)
		c.text(&e.InstanceID)
		c.trace(&e.ParentTraceContext)
	case *history.TaskScheduled:
		c.string(&e.Name)
		c.string(&e.Version)
		c.text(&e.Input)
		c.trace(&e.ParentTraceContext)
		c.tags(&e.Tags)
	case *history.TaskCompleted:
		c.int(&e.TaskScheduledID)
		c.text(&e.Result)
	case *history.TaskFailed:
		c.failed(&e.TaskScheduledID, &e.Reason, &e.Details, &e.Failure)
	case *history.SubOrchestrationInstanceCreated:
		c.string(&e.Name)
		c.string(&e.Version)
		c.string(&e.InstanceID)
		c.text(&e.Input)
		c.text(&e.ClientSpanID)
		c.tags(&e.Tags)
	case *history.SubOrchestrationInstanceCompleted:
		c.int(&e.TaskScheduledID)
		c.text(&e.Result)
	case *history.SubOrchestrationInstanceFailed:
		c.failed(&e.TaskScheduledID, &e.Reason, &e.Details, &e.Failure)
	case *history.TimerCreated:
		c.time(&e.FireAt)
	case *history.TimerFired:
		c.int(&e.TimerID)
		c.time(&e.FireAt)
	case *history.EventSent:
		c.string(&e.InstanceID)
		c.string(&e.Name)
		c.text(&e.Input)
	case *history.EventRaised:
		c.string(&e.Name)
		c.text(&e.Input)
		c.trace(&e.ParentTraceContext)
	case *history.GenericEvent:
		c.text(&e.Data)
	case *history.HistoryState:
		c.text(&e.State)
	case *history.OrchestratorStarted, *history.OrchestratorCompleted:
	default:
		c.fail(fmt.Errorf("%T is no event of a history", v))
	}
}

func (c *coder) executionStarted(e *history.ExecutionStarted) {
	c.instance(&e.Instance)
	if c.present(e.Parent != nil) {
		if c.reading {
			e.Parent = &history.ParentInstance{}
		}
		c.string(&e.Parent.Name)
		c.string(&e.Parent.Version)
		c.instance(&e.Parent.Instance)
		c.int(&e.Parent.TaskScheduleID)
	}
	c.string(&e.Name)
	c.string(&e.Version)
	c.text(&e.Input)
	c.tags(&e.Tags)
	c.text(&e.Correlation)
	c.trace(&e.ParentTraceContext)
	c.time(&e.ScheduledStart)
	if c.present(e.Generation != nil) {
		if c.reading {
			e.Generation = new(int)
		}
		c.int(e.Generation)
	}
	c.bool(&e.GenerateNewTrace)
}

func (c *coder) instance(v *history.OrchestrationInstance) {
	c.string(&v.InstanceID)
	c.string(&v.ExecutionID)
}

func (c *coder) outcome(status *history.RuntimeStatus, result **string, failure **history.FailureDetails) {
	c.status(status)
	c.text(result)
	c.failure(failure, 0)
}

func (c *coder) status(v *history.RuntimeStatus) {
	n := int(*v)
	c.int(&n)
	if c.reading {
		*v = history.RuntimeStatus(n)
	}
}

func (c *coder) failed(id *int, reason, details **string, failure **history.FailureDetails) {
	c.int(id)
	c.text(reason)
	c.text(details)
	c.failure(failure, 0)
}

// maxInnerFailures bounds how deep failures are nested, for reading as for
// writing: what is deeper would let damaged bytes exhaust the stack.
const maxInnerFailures = 1000

func (c *coder) failure(v **history.FailureDetails, depth int) {
	if !c.present(*v != nil) {
		if c.reading {
			*v = nil
		}
		return
	}
	if depth == maxInnerFailures {
		c.fail(fmt.Errorf("failure has more than %d inner failures", maxInnerFailures))
		return
	}
	if c.reading {
		*v = &history.FailureDetails{}
	}
	f := *v
	c.string(&f.ErrorType)
	c.string(&f.ErrorMessage)
	c.text(&f.StackTrace)
	c.bool(&f.IsNonRetriable)
	c.tags(&f.Properties)
	c.failure(&f.InnerFailure, depth+1)
}

func (c *coder) trace(v **history.TraceContext) {
	if !c.present(*v != nil) {
		if c.reading {
			*v = nil
		}
		return
	}
	if c.reading {
		*v = &history.TraceContext{}
	}
	t := *v
	c.string(&t.TraceParent)
	c.text(&t.TraceState)
	c.text(&t.ID)
	c.text(&t.SpanID)
	c.text(&t.ActivityStartTime)
}
