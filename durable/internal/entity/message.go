package entity

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // it is what UUIDs of version 5 are made with
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// The names of the events that entities get
// (DurableTask.Core/Entities/EventFormat/EntityMessageEventNames.cs). Any other
// makes an entity go on with what is in its queue.
const (
	requestEvent  = "op"
	releaseEvent  = "release"
	continueEvent = "continue"
)

// IsRelease reports whether an event for an entity releases a lock.
func IsRelease(eventName string) bool { return eventName == releaseEvent }

// longestDelay is how far ahead a signal can be sent: no queue message may be
// hidden for longer than a week
// (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs,
// MaximumSignalDelayTime). One that is due later comes early, and is sent again.
const longestDelay = 6 * 24 * time.Hour

// EventName returns the name of the event with a request that is due at a time, zero
// for at once (EntityMessageEventNames.cs, ScheduledRequestMessageEventName).
func EventName(due, now time.Time) string {
	if due.IsZero() {
		return requestEvent
	}
	if due.Sub(now) > longestDelay {
		due = now.Add(longestDelay)
	}
	return requestEvent + "@" + due.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

// NewSignal returns the event by which a client signals an entity
// (DurableTask.Core/Entities/ClientEntityHelpers.cs, EmitOperationSignal). A due
// that is zero means at once.
func NewSignal(requestID, op string, input *string, due, now time.Time) (name, text string) {
	r := Request{ID: requestID, Operation: op, Signal: true, Input: input, Due: history.Ticks(due)}
	if due.IsZero() {
		r.Due = time.Time{}
	}
	return EventName(r.Due, now), r.Encode()
}

// OrphanedLock is the lock ID with which an administrator releases the lock of
// an orchestration that is gone.
const OrphanedLock = "fix-orphaned-lock"

// A Release ends a lock
// (DurableTask.Core/Entities/EventFormat/ReleaseMessage.cs).
type Release struct {
	Parent string `json:"parent"` // the instance ID of the orchestration
	ID     string `json:"id"`     // of the lock request
	Origin string `json:"origin"` // as the request's
}

// NewRelease returns the event by which an orchestration gives up a lock.
func NewRelease(r Release) (name, text string) {
	var w writer
	w.open()
	w.str("parent", r.Parent)
	w.str("id", r.ID)
	w.filled("origin", r.Origin)
	w.close()
	return releaseEvent, string(w.buf)
}

func decodeRelease(text *string) (Release, error) {
	var r Release
	if text == nil {
		return r, errors.New("the release of a lock has no content")
	}
	if err := json.Unmarshal([]byte(*text), &r); err != nil {
		return r, fmt.Errorf("decode the release of a lock: %w", err)
	}
	if r.Parent == "" {
		return r, errors.New("the release of a lock does not say whose lock it is")
	}
	return r, nil
}

// lockGranted is the content of the answer to a lock request
// (DurableTask.Core/Entities/EventFormat/ResponseMessage.cs,
// LockAcquisitionCompletion).
const lockGranted = "Lock Acquisition Completed"

// A Response answers a [Request].
type Response struct {
	Result  *string
	Failure *history.FailureDetails // nil if the operation succeeded
	Origin  string                  // as the request's
}

// Encode returns r as JSON text
// (DurableTask.Core/Entities/EventFormat/ResponseMessage.cs).
func (r Response) Encode() string { return r.encode("") }

// encode also says, if message is not empty, that the whole batch failed.
func (r Response) encode(message string) string {
	var w writer
	w.open()
	w.nullable("result", r.Result)
	w.filled("exceptionType", message)
	if r.Failure != nil {
		w.key("failureDetails")
		w.failure(r.Failure)
	}
	w.filled("origin", r.Origin)
	w.close()
	return string(w.buf)
}

// OriginOfResponse returns the origin of the request that an event's content answers,
// empty if it has none. It is the last member of our answers, which may be long.
func OriginOfResponse(text *string) string {
	const member, length = `,"origin":"`, 36
	if text == nil {
		return ""
	}
	rest, ok := strings.CutSuffix(*text, `"}`)
	if n := len(rest) - length; ok && n > 0 && strings.HasSuffix(rest[:n], member) {
		return rest[n:]
	}
	return ""
}

// ParseResponse reads an answer in either dialect. In the older scheduler's a failure
// has the exception's type, and the serialized exception as its result.
func ParseResponse(text *string) (Response, error) {
	if text == nil {
		return Response{}, nil
	}
	var w struct {
		Result    *string            `json:"result"`
		Exception *string            `json:"exceptionType"`
		Failure   *eventjson.Failure `json:"failureDetails"`
	}
	if err := json.Unmarshal([]byte(*text), &w); err != nil {
		return Response{}, fmt.Errorf("decode the answer of an entity: %w", err)
	}
	switch {
	case w.Failure != nil:
		return Response{Failure: w.Failure.Decode()}, nil
	case w.Exception != nil:
		return Response{Failure: exceptionFailure(*w.Exception, w.Result)}, nil
	}
	return Response{Result: w.Result}, nil
}

// exceptionFailure returns the failure of an exception's type and serialized text.
func exceptionFailure(exception string, serialized *string) *history.FailureDetails {
	kind, _, _ := strings.Cut(exception, ",")
	f := &history.FailureDetails{ErrorType: kind, ErrorMessage: exception}
	if serialized == nil {
		return f
	}
	f.ErrorMessage = *serialized
	var known struct{ Message *string }
	if json.Unmarshal([]byte(*serialized), &known) == nil && known.Message != nil {
		f.ErrorMessage = *known.Message
	}
	return f
}

// DeriveID returns a GUID of parts: the same for the same ones, and different for
// others.
func DeriveID(parts ...string) string {
	h := sha1.New() //nolint:gosec // see the import
	h.Write([]byte("durable entity request"))
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	id := h.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// key returns the ID by which the lock is remembered.
func (r Release) key() string { return cmp.Or(r.Origin, strings.ToLower(r.ID)) }

// names reports whether r releases the lock of the request with an ID and origin.
func (r Release) names(id, origin string) bool {
	if origin != "" && r.Origin != "" {
		return origin == r.Origin
	}
	return strings.EqualFold(id, r.ID)
}
