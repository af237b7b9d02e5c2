package partition

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// coder encodes and decodes records.
type coder struct {
	logstore.Coder
	recorded byte // the version of a record with events
	needed   byte // the lowest version that has all fields of the events encoded so far
}

func newEncoder(buf []byte) *coder { return &coder{Coder: logstore.Coder{Buf: buf}} }

func newDecoder(b []byte) *coder { return &coder{Coder: logstore.Coder{Buf: b, Reading: true}} }

// encodeEvents returns the record of events that f encodes. It uses the lowest version that
// has all their fields, so that an older program rejects only records with newer fields.
func encodeEvents(buf []byte, f func(*coder)) ([]byte, error) {
	c := newEncoder(buf)
	c.recorded = 1
	f(c)
	if c.needed > c.recorded {
		again := newEncoder(buf)
		again.recorded = c.needed
		f(again)
		c = again
	}
	return c.Buf, c.End()
}

// The first byte of every record is its version. A program reads all versions up to its own.
// Records with events have [history.RecordVersion].
const (
	recordVersion = 1 // records without events, except rows
	rowVersion    = 2 // rows; version 2 added FirstCreatedAt
)

// version codes a record's first byte and returns it.
func (c *coder) version(newest byte) byte {
	v := newest
	c.Byte(&v)
	if c.Err == nil && (v == 0 || v > newest) {
		c.Fail(fmt.Errorf("the record has version %d, and this program reads versions up to %d: a newer program wrote it; update this one", v, newest))
	}
	return v
}

// eventsVersion codes the first byte of a record with events.
func (c *coder) eventsVersion() {
	if c.Reading {
		c.recorded = c.version(history.RecordVersion)
	} else {
		c.version(c.recorded)
	}
}

// route is the part of a message's record that says where the message goes. It comes first, so
// that opening a hub does not decode the rest.
type route struct {
	kind   history.EventType
	target history.OrchestrationInstance
}

func (c *coder) route(r *route) {
	c.eventsVersion()
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

func encodeMessage(m provider.TaskMessage) ([]byte, error) { return appendMessage(nil, m) }

// appendMessage appends the record of a message to b.
func appendMessage(b []byte, m provider.TaskMessage) ([]byte, error) {
	if m.Event == nil {
		return nil, fmt.Errorf("message for instance %s has no event", m.Target.InstanceID)
	}
	return encodeEvents(b, func(c *coder) { c.message(&m) })
}

func decodeMessage(b []byte) (provider.TaskMessage, error) {
	var m provider.TaskMessage
	c := newDecoder(b)
	c.message(&m)
	if err := c.End(); err != nil {
		return provider.TaskMessage{}, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

func decodeRoute(b []byte) (route, error) {
	var r route
	c := newDecoder(b)
	c.route(&r)
	return r, c.Err
}

// activityHead is the part of an activity's record that precedes the message.
type activityHead struct {
	// crashes is the hub's crash count when the record was written. After each later crash, the
	// activity may have been dispatched one more time than recorded.
	crashes uint64
	// deliveries counts the dispatches up to the last clean close of the hub.
	deliveries uint64
}

func (c *coder) activityHead(h *activityHead) {
	c.version(recordVersion)
	c.Uint(&h.crashes)
	c.Uint(&h.deliveries)
}

func encodeActivity(h activityHead, message []byte) []byte {
	c := newEncoder(make([]byte, 0, len(message)+8))
	c.activityHead(&h)
	return append(c.Buf, message...)
}

// decodeActivityHead returns the head of an activity's record and the undecoded message.
func decodeActivityHead(b []byte) (h activityHead, message []byte, err error) {
	c := newDecoder(b)
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

// payload codes a payload that is stored in the row. For a payload with its own record it codes
// only that fact.
func (c *coder) payload(text **string) {
	apart := isSeparate(*text)
	c.Bool(&apart)
	switch {
	case !apart:
		c.Text(text)
	case c.Reading:
		*text = unread
	}
}

func encodeRow(r *row) ([]byte, error) {
	c := newEncoder(make([]byte, 0, 128))
	c.row(r)
	return c.Buf, c.End()
}

// decodeRow decodes a row. Payloads with records of their own are left unread.
func decodeRow(id string, b []byte) (*row, error) {
	var r row
	c := newDecoder(b)
	c.row(&r)
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("decode instance: %w", err)
	}
	r.Instance.InstanceID = id
	return &r, nil
}

// encodeEpisode returns the record of the events that one checkpoint appends to a history. It
// starts with the time of the last event: the instance's last update can be read without
// decoding events.
func encodeEpisode(events []history.Event) ([]byte, error) {
	return encodeEvents(make([]byte, 0, 64*len(events)), func(c *coder) {
		c.eventsVersion()
		last := events[len(events)-1].Head().Timestamp
		c.Time(&last)
		n := uint64(len(events))
		c.Uint(&n)
		for _, e := range events {
			c.event(&e)
		}
	})
}

// decodeEpisode appends the events of a record to past.
func decodeEpisode(past []history.Event, b []byte) ([]history.Event, error) {
	c := newDecoder(b)
	c.eventsVersion()
	var last time.Time
	c.Time(&last)
	var n uint64
	c.Uint(&n)
	if n > uint64(len(c.Buf)) {
		c.Fail(logstore.ErrTruncated)
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
	c := newDecoder(b)
	c.eventsVersion()
	var last time.Time
	c.Time(&last)
	return last, c.Err
}

// event codes an event: the number of its type, its head and its fields.
func (c *coder) event(v *history.Event) {
	var kind byte
	if !c.Reading {
		kind = byte((*v).Type())
	}
	c.Byte(&kind)
	c.eventOf(history.EventType(kind), v)
}

// eventOf codes the head and the fields of an event whose type is known.
func (c *coder) eventOf(kind history.EventType, v *history.Event) {
	if c.Err != nil {
		return
	}
	if c.Reading {
		if *v = history.NewEvent(kind); *v == nil {
			c.Fail(fmt.Errorf("%d is not a valid event type", kind))
			return
		}
	}
	head := (*v).Head()
	c.Int(&head.EventID)
	c.Bool(&head.IsPlayed)
	c.Time(&head.Timestamp)
	if !history.VisitFields(*v, (*eventCoder)(c)) {
		c.Fail(fmt.Errorf("%T is not a history event", *v))
	}
	if c.Reading && c.Err != nil {
		*v = nil
	}
}

// eventCoder implements the visitor of [history.VisitFields] on a coder.
type eventCoder coder

// Since reports whether the record's version has the fields that were added in version. When
// writing, set says that the event uses them.
func (c *eventCoder) Since(version byte, set bool) bool {
	if set {
		c.needed = max(c.needed, version)
	}
	return c.recorded >= version
}

func (c *eventCoder) Bool(_ string, v *bool) { c.Coder.Bool(v) }

func (c *eventCoder) Int(_ string, v *int) { c.Coder.Int(v) }

func (c *eventCoder) OptionalInt(_ string, v **int) {
	if c.Present(*v != nil) {
		if c.Reading {
			*v = new(int)
		}
		c.Coder.Int(*v)
	}
}

func (c *eventCoder) String(_ string, v *string) { c.Coder.String(v) }

func (c *eventCoder) Text(_ string, v **string) { c.Coder.Text(v) }

func (c *eventCoder) JSON(_ string, v **string) { c.Coder.Text(v) }

func (c *eventCoder) Time(_ string, v *time.Time) { c.Coder.Time(v) }

func (c *eventCoder) OptionalTime(_ string, v *time.Time) { c.Coder.Time(v) }

func (c *eventCoder) Tags(_ string, v *map[string]string) { c.Coder.Tags(v) }

func (c *eventCoder) Status(_ string, v *history.RuntimeStatus) { (*coder)(c).status(v) }

func (c *eventCoder) Instance(_ string, v *history.OrchestrationInstance) { (*coder)(c).instance(v) }

func (c *eventCoder) Parent(_ string, v **history.ParentInstance) {
	if !c.Present(*v != nil) {
		return
	}
	if c.Reading {
		*v = &history.ParentInstance{}
	}
	c.Coder.String(&(*v).Name)
	c.Coder.String(&(*v).Version)
	(*coder)(c).instance(&(*v).Instance)
	c.Coder.Int(&(*v).TaskScheduleID)
}

func (c *eventCoder) Trace(_ string, v **history.TraceContext) { (*coder)(c).trace(v) }

func (c *eventCoder) Failure(_ string, v **history.FailureDetails) { (*coder)(c).failure(v, 0) }

func (c *coder) instance(v *history.OrchestrationInstance) {
	c.String(&v.InstanceID)
	c.String(&v.ExecutionID)
}

func (c *coder) status(v *history.RuntimeStatus) {
	n := int(*v)
	c.Int(&n)
	if c.Reading {
		*v = history.RuntimeStatus(n)
	}
}

// optional codes whether *v is set and returns *v, which may be nil. When reading, it allocates
// a new value.
func optional[T any](c *coder, v **T) *T {
	if there := c.Present(*v != nil); c.Reading {
		if *v = nil; there {
			*v = new(T)
		}
	}
	return *v
}

// maxInnerFailures bounds the nesting of failures, when encoding and when decoding. Without it,
// damaged bytes could exhaust the stack.
const maxInnerFailures = 1000

func (c *coder) failure(v **history.FailureDetails, depth int) {
	f := optional(c, v)
	if f == nil {
		return
	}
	if depth == maxInnerFailures {
		c.Fail(fmt.Errorf("failure has more than %d inner failures", maxInnerFailures))
		return
	}
	c.String(&f.ErrorType)
	c.String(&f.ErrorMessage)
	c.Text(&f.StackTrace)
	c.Bool(&f.IsNonRetriable)
	c.Tags(&f.Properties)
	c.failure(&f.InnerFailure, depth+1)
}

func (c *coder) trace(v **history.TraceContext) {
	t := optional(c, v)
	if t == nil {
		return
	}
	c.String(&t.TraceParent)
	c.Text(&t.TraceState)
	c.Text(&t.ID)
	c.Text(&t.SpanID)
	c.Text(&t.ActivityStartTime)
}

func (c *coder) mail(m *Mail) {
	c.version(recordVersion)
	c.String(&m.Sender)
	c.Uint(&m.Answered)
	list(c, &m.Requests, c.request)
}

func (c *coder) request(r *Request) {
	c.Uint(&r.Number)
	c.Byte((*byte)(&r.Kind))
	switch r.Kind {
	case RequestMessage:
		c.bytes(&r.Message)
	case RequestStart:
		c.bytes(&r.Message)
		list(c, &r.Refuse, c.status)
	case RequestPurge:
		c.String(&r.ID)
		if c.Present(r.Seen != nil) {
			if c.Reading {
				r.Seen = &provider.InstanceState{}
			}
			c.String(&r.Seen.Instance.ExecutionID)
			c.status(&r.Seen.Status)
			c.Time(&r.Seen.LastUpdatedAt)
		}
	case RequestRewind:
		c.instance(&r.Execution.Instance)
		list(c, &r.Execution.Replace, c.Int)
		list(c, &r.Execution.MarkChildren, c.Int)
		c.Time(&r.Time)
	default:
		c.Fail(fmt.Errorf("%d is not a valid request kind", r.Kind))
	}
}

func (c *coder) bytes(v *[]byte) {
	s := string(*v)
	c.String(&s)
	if c.Reading {
		*v = []byte(s)
	}
}

func (c *coder) answer(a *answer) {
	c.version(recordVersion)
	c.Byte(&a.kind)
	c.status(&a.status)
	c.String(&a.text)
}

// sharedBytes returns the bytes of a text without a copy. They must not be changed; records never are.
func sharedBytes(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }
