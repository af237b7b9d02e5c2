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

// A route is the part of a message's record that says where it goes. It comes
// first, so that a hub can be opened without reading the rest.
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

// An activityHead is what an activity's record says before its message.
type activityHead struct {
	// crashes is how often the hub had not been closed in order when the
	// activity was scheduled: what was not delivered since may have been.
	crashes uint64
	// deliveries counts how often the activity was handed out, as of the last
	// time that the hub was closed.
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

// decodeActivityHead returns what comes before an activity's message, and the
// message's bytes.
func decodeActivityHead(b []byte) (h activityHead, message []byte, err error) {
	c := reading(b)
	c.activityHead(&h)
	if c.Err != nil {
		return activityHead{}, nil, fmt.Errorf("decode activity: %w", c.Err)
	}
	return h, c.Buf, nil
}

// encodeEpisode returns the record of the events that one checkpoint appends
// to a history. The time of the last comes first, so that an instance's time
// of change can be read without them.
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
