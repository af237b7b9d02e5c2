package entity

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Request asks an entity to run an operation or to grant a lock
// (DurableTask.Core/Entities/EventFormat/RequestMessage.cs).
type Request struct {
	ID        string // a GUID; also the name of the event that answers
	Operation string // empty for a lock request
	Signal    bool
	Input     *string
	// Parent is the instance ID of the sender; empty for a client. ParentExecution is its
	// execution ID; empty for an entity.
	Parent          string
	ParentExecution string
	Due             time.Time // zero means immediately
	// Timestamp and Predecessor order the requests of one sender; see [Sorter].
	Timestamp   time.Time
	Predecessor time.Time
	LockSet     []ID // nil for an operation
	Position    int  // index in LockSet of the entity to lock next
	// Origin identifies the request across all attempts of an orchestration to send it, which
	// have different IDs. Other programs do not send it, and .NET ignores it.
	Origin string

	// JSON text, unchanged; empty if absent.
	traceContext string
	requestTime  string
	createTrace  bool
}

// IsLock reports whether r is a lock request.
func (r *Request) IsLock() bool { return r.LockSet != nil }

// isLabeled reports whether r has a position among its sender's requests. .NET treats a
// request without a label as a duplicate.
func (r *Request) isLabeled() bool {
	return r.Parent != "" && r.Position == 0 && r.Due.IsZero() && !r.Timestamp.IsZero()
}

// key returns the ID that r and its duplicates share.
func (r *Request) key() string { return cmp.Or(r.Origin, r.ID) }

// Encode returns r as JSON text. The ID has the same position as in .NET, whose reader expects
// it near the start.
func (r *Request) Encode() string {
	w := writer{buf: make([]byte, 0, 256)}
	r.write(&w)
	return string(w.buf)
}

func (r *Request) write(w *writer) {
	w.open()
	if r.IsLock() {
		w.raw("op", "null")
	} else {
		w.str("op", r.Operation)
	}
	if r.Signal {
		w.bool("signal", true)
	}
	w.optional("input", r.Input)
	w.str("id", r.ID)
	w.filled("parent", r.Parent)
	w.filled("parentExecution", r.ParentExecution)
	if !r.Due.IsZero() {
		w.time("due", r.Due)
	}
	w.time("Timestamp", r.Timestamp)
	w.time("Predecessor", r.Predecessor)
	if r.IsLock() {
		w.list("lockset", len(r.LockSet), func(i int) {
			w.open()
			w.str("name", r.LockSet[i].Name)
			w.str("key", r.LockSet[i].Key)
			w.close()
		})
	}
	if r.Position != 0 {
		w.int("pos", r.Position)
	}
	w.bool("IsLockRequest", r.IsLock())
	if r.traceContext != "" {
		w.raw("parentTraceContext", r.traceContext)
	}
	w.bool("createTrace", r.createTrace)
	if r.requestTime != "" {
		w.raw("requestTime", r.requestTime)
	}
	w.filled("origin", r.Origin)
	w.close()
}

// wireRequest is the JSON form of a Request. Other members are ignored, such as $type in
// messages of the extension's older scheduler.
type wireRequest struct {
	Operation       *string         `json:"op"`
	Signal          bool            `json:"signal"`
	Input           *string         `json:"input"`
	ID              string          `json:"id"`
	Parent          string          `json:"parent"`
	ParentExecution string          `json:"parentExecution"`
	Due             stamp           `json:"due"`
	Timestamp       stamp           `json:"Timestamp"`
	Predecessor     stamp           `json:"Predecessor"`
	LockSet         []ID            `json:"lockset"`
	Position        int             `json:"pos"`
	TraceContext    json.RawMessage `json:"parentTraceContext"`
	CreateTrace     bool            `json:"createTrace"`
	RequestTime     json.RawMessage `json:"requestTime"`
	Origin          string          `json:"origin"`
}

// DecodeRequest decodes a request in either format.
func DecodeRequest(text *string) (*Request, error) {
	if text == nil {
		return nil, errors.New("a request to an entity has no content")
	}
	r := new(Request)
	if err := json.Unmarshal([]byte(*text), r); err != nil {
		return nil, fmt.Errorf("decode a request to an entity: %w", err)
	}
	return r, nil
}

// UnmarshalJSON decodes a request in either format.
func (r *Request) UnmarshalJSON(data []byte) error {
	var w wireRequest
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if w.ID == "" {
		return errors.New("the request has no id")
	}
	*r = Request{
		ID: strings.ToLower(w.ID), Signal: w.Signal, Input: w.Input, Parent: w.Parent, ParentExecution: w.ParentExecution,
		Due: w.Due.Time, Timestamp: w.Timestamp.Time, Predecessor: w.Predecessor.Time, LockSet: w.LockSet, Position: w.Position, Origin: w.Origin,
		traceContext: present(w.TraceContext), requestTime: present(w.RequestTime), createTrace: w.CreateTrace,
	}
	if w.Operation != nil {
		r.Operation = *w.Operation
	}
	return r.check()
}

// check returns an error if r is an invalid lock request.
func (r *Request) check() error {
	if !r.IsLock() {
		return nil
	}
	switch {
	case r.Position < 0 || r.Position >= len(r.LockSet):
		return fmt.Errorf("lock request %s is at position %d of %d entities", r.ID, r.Position, len(r.LockSet))
	case r.Parent == "":
		return fmt.Errorf("lock request %s has no parent", r.ID)
	}
	return nil
}

// present returns raw as text, or "" if it is null.
func present(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// Trace returns the trace of the request.
func (r *Request) Trace() Trace {
	t := Trace{Create: r.createTrace}
	var parent wireTrace
	if r.traceContext != "" && json.Unmarshal([]byte(r.traceContext), &parent) == nil && parent.TraceParent != "" {
		t.Parent = &history.TraceContext{TraceParent: parent.TraceParent, TraceState: parent.TraceState}
	}
	var at time.Time
	if r.requestTime != "" && json.Unmarshal([]byte(r.requestTime), &at) == nil {
		t.At = at
	}
	return t
}

// SetTrace sets the trace of the request.
func (r *Request) SetTrace(t Trace) {
	r.traceContext, r.requestTime, r.createTrace = "", "", t.Create
	if t.Parent != nil {
		text, err := json.Marshal(wireTrace{t.Parent.TraceParent, t.Parent.TraceState})
		if err != nil {
			return // strings can be encoded
		}
		r.traceContext = string(text)
	}
	if !t.At.IsZero() {
		r.requestTime = `"` + history.TruncateToTicks(t.At).UTC().Format("2006-01-02T15:04:05.9999999-07:00") + `"`
	}
}
