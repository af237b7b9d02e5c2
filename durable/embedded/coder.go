package embedded

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// coder codes records.
type coder struct{ logstore.Coder }

func writing(buf []byte) *coder { return &coder{logstore.Coder{Buf: buf}} }

func reading(b []byte) *coder { return &coder{logstore.Coder{Buf: b, Reading: true}} }

// The first byte of every record is its version. A program reads all versions up to
// its own.
const (
	recordVersion = 1 // of all but
	rowVersion    = 2 // an instance's row, since it has the time of the first start
)

// version codes a record's first byte and returns it.
func (c *coder) version(newest byte) byte {
	v := newest
	c.Byte(&v)
	if c.Err == nil && (v == 0 || v > newest) {
		c.Fail(fmt.Errorf("record has version %d; this program knows versions up to %d", v, newest))
	}
	return v
}

// route is the part of a message's record that says where the message goes. It
// comes first, so that a hub can be opened without reading the rest.
type route struct {
	kind   history.EventType
	target history.OrchestrationInstance
}

func (c *coder) route(r *route) {
	c.version(recordVersion)
	kind := byte(r.kind)
	c.Byte(&kind)
	r.kind = history.EventType(kind)
	c.instance(&r.target)
}

func (c *coder) message(m *provider.TaskMessage) {
	r := route{target: m.Target}
	if !c.Reading {
		r.kind = m.Event.Type()
	}
	c.route(&r)
	if c.Reading {
		m.Target = r.target
	}
	c.Tags(&m.Tags)
	c.eventOf(r.kind, &m.Event)
}

func encodeMessage(m provider.TaskMessage) ([]byte, error) {
	if m.Event == nil {
		return nil, fmt.Errorf("message for instance %s has no event", m.Target.InstanceID)
	}
	c := writing(nil)
	c.message(&m)
	return c.Buf, c.End()
}

func decodeMessage(b []byte) (provider.TaskMessage, error) {
	var m provider.TaskMessage
	c := reading(b)
	c.message(&m)
	if err := c.End(); err != nil {
		return provider.TaskMessage{}, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

func decodeRoute(b []byte) (route, error) {
	var r route
	c := reading(b)
	c.route(&r)
	return r, c.Err
}

// activityHead is the part of an activity's record before its message.
type activityHead struct {
	// crashes is how often the hub had crashed when the record was written. With
	// each crash since, the activity may have been dispatched once more.
	crashes uint64
	// deliveries is how often the activity was dispatched before the hub was last
	// closed.
	deliveries uint64
}

func (c *coder) activityHead(h *activityHead) {
	c.version(recordVersion)
	c.Uint(&h.crashes)
	c.Uint(&h.deliveries)
}

func encodeActivity(h activityHead, message []byte) []byte {
	c := writing(make([]byte, 0, len(message)+8))
	c.activityHead(&h)
	return append(c.Buf, message...)
}

// decodeActivityHead returns the head of an activity's record, and the bytes of its
// message.
func decodeActivityHead(b []byte) (h activityHead, message []byte, err error) {
	c := reading(b)
	c.activityHead(&h)
	if c.Err != nil {
		return activityHead{}, nil, fmt.Errorf("decode activity: %w", c.Err)
	}
	return h, c.Buf, nil
}

func (c *coder) row(r *row) {
	version := c.version(rowVersion)
	c.Uint(&r.number)
	c.String(&r.Instance.ExecutionID)
	c.String(&r.Name)
	c.String(&r.Version)
	c.status(&r.Status)
	c.Time(&r.CreatedAt)
	c.Time(&r.LastUpdatedAt)
	c.Time(&r.CompletedAt)
	c.Time(&r.ScheduledAt)
	c.Int(&r.Generation)
	c.Tags(&r.Tags)
	for _, text := range r.payloads() {
		c.payload(text)
	}
	if version >= 2 {
		c.Time(&r.FirstCreatedAt)
	}
}

// payload codes a payload, if it has no record of its own.
func (c *coder) payload(text **string) {
	apart := isApart(*text)
	c.Bool(&apart)
	switch {
	case !apart:
		c.Text(text)
	case c.Reading:
		*text = unread
	}
}

func encodeRow(r *row) ([]byte, error) {
	c := writing(make([]byte, 0, 128))
	c.row(r)
	return c.Buf, c.End()
}

// decodeRow leaves payloads that have records of their own unread.
func decodeRow(id string, b []byte) (*row, error) {
	var r row
	c := reading(b)
	c.row(&r)
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("decode instance: %w", err)
	}
	r.Instance.InstanceID = id
	return &r, nil
}

// encodeEpisode returns the record of the events that one checkpoint appends to a
// history. It begins with the time of the last event, so that the time of an
// instance's last update can be read without the events.
func encodeEpisode(events []history.Event) ([]byte, error) {
	c := writing(make([]byte, 0, 64*len(events)))
	c.version(recordVersion)
	last := events[len(events)-1].Head().Timestamp
	c.Time(&last)
	n := uint64(len(events))
	c.Uint(&n)
	for _, e := range events {
		c.event(&e)
	}
	return c.Buf, c.End()
}

// decodeEpisode appends the events of a record to past.
func decodeEpisode(past []history.Event, b []byte) ([]history.Event, error) {
	c := reading(b)
	c.version(recordVersion)
	var last time.Time
	c.Time(&last)
	var n uint64
	c.Uint(&n)
	if n > uint64(len(c.Buf)) {
		c.Fail(logstore.ErrShort)
		n = 0
	}
	for range n {
		var e history.Event
		if c.event(&e); c.Err != nil {
			break
		}
		past = append(past, e)
	}
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("decode history: %w", err)
	}
	return past, nil
}

// decodeEpisodeTime returns the time of a record's last event.
func decodeEpisodeTime(b []byte) (time.Time, error) {
	c := reading(b)
	c.version(recordVersion)
	var last time.Time
	c.Time(&last)
	return last, c.Err
}

// event codes an event: its type's number, its head and its own fields.
//
// A new field of an event has to be its last, and needs a new recordVersion, which
// tells the reader whether the field is there.
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
