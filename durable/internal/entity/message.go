package entity

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // UUIDs of version 5 use SHA-1
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

// Names of the events that entities receive
// (DurableTask.Core/Entities/EventFormat/EntityMessageEventNames.cs). An event with any other
// name makes the entity continue with its queue.
const (
	requestEvent  = "op"
	releaseEvent  = "release"
	continueEvent = "continue"
)

// IsRelease reports whether an event sent to an entity releases a lock.
func IsRelease(eventName string) bool { return eventName == releaseEvent }

// longestDelay is the longest delay of a message: a queue message can be hidden for at most a
// week (DurableTask.AzureStorage/AzureStorageOrchestrationService.cs, MaximumSignalDelayTime).
// A signal that is due later arrives early, and the entity sends it to itself again.
const longestDelay = 6 * 24 * time.Hour

// EventName returns the name of the event with a request that is due at the given time; a zero
// due means immediately (EntityMessageEventNames.cs, ScheduledRequestMessageEventName).
func EventName(due, now time.Time) string {
	if due.IsZero() {
		return requestEvent
	}
	if due.Sub(now) > longestDelay {
		due = now.Add(longestDelay)
	}
	return requestEvent + "@" + due.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

// NewSignal returns the name and the content of the event of a client's signal
// (DurableTask.Core/Entities/ClientEntityHelpers.cs, EmitOperationSignal). A zero due means
// immediately.
func NewSignal(requestID, op string, input *string, due, now time.Time) (name, text string) {
	r := Request{ID: requestID, Operation: op, Signal: true, Input: input, Due: history.TruncateToTicks(due)}
	if due.IsZero() {
		r.Due = time.Time{}
	}
	return EventName(r.Due, now), r.Encode()
}

// OrphanedLock is the lock ID in the release that an administrator sends for an orchestration
// that no longer exists.
const OrphanedLock = "fix-orphaned-lock"

// A Release ends a lock (DurableTask.Core/Entities/EventFormat/ReleaseMessage.cs).
type Release struct {
	Parent string `json:"parent"` // the instance ID of the orchestration that holds the lock
	ID     string `json:"id"`     // the ID of the lock request
	Origin string `json:"origin"` // the origin of the lock request
}

// NewRelease returns the name and the content of the event that releases a lock.
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
		return r, errors.New("the release of a lock has no parent")
	}
	return r, nil
}

// lockGranted is the content of the answer to a lock request
// (DurableTask.Core/Entities/EventFormat/ResponseMessage.cs, LockAcquisitionCompletion).
const lockGranted = "Lock Acquisition Completed"

// A Response is the answer to a [Request].
type Response struct {
	Result  *string
	Failure *history.FailureDetails // nil if the operation succeeded
	Origin  string                  // the origin of the request
}

// Encode returns r as JSON text (DurableTask.Core/Entities/EventFormat/ResponseMessage.cs).
func (r Response) Encode() string {
	var w writer
	w.open()
	w.nullable("result", r.Result)
	if r.Failure != nil {
		w.key("failureDetails")
		w.failure(r.Failure)
	}
	w.filled("origin", r.Origin)
	w.close()
	return string(w.buf)
}

// OriginOfAnswer returns the origin of the request that an event answers. It returns "" if the
// content has no origin, or if the event is not the answer of an entity. An answer has the ID of
// its request as its name, and Encode writes its content. OriginOfAnswer looks only at the start
// and the end of the content, because an answer may be long.
func OriginOfAnswer(e *history.EventRaised) string {
	const start, member, length = `{"result":`, `,"origin":"`, 36
	if e.Input == nil || !strings.HasPrefix(*e.Input, start) || !isRequestID(e.Name) {
		return ""
	}
	rest, ok := strings.CutSuffix(*e.Input, `"}`)
	if n := len(rest) - length; ok && n > 0 && strings.HasSuffix(rest[:n], member) {
		return rest[n:]
	}
	return ""
}

// isRequestID reports whether name is a GUID with dashes.
func isRequestID(name string) bool {
	raw, err := hex.DecodeString(strings.ReplaceAll(name, "-", ""))
	return err == nil && len(raw) == 16 && len(name) == 36
}

// ParseResponse decodes an answer in either format. The older scheduler encodes a failure as
// the exception's type, with the serialized exception as the result.
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

// exceptionFailure converts an exception's type and serialized text to a failure.
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

// DeriveID returns a GUID that is derived from parts. Equal parts give equal IDs, other parts
// give other IDs.
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

// key returns the ID under which the memory holds the lock.
func (r Release) key() string { return cmp.Or(r.Origin, strings.ToLower(r.ID)) }

// names reports whether r releases the lock of the request with the given ID and origin.
func (r Release) names(id, origin string) bool {
	if origin != "" && r.Origin != "" {
		return origin == r.Origin
	}
	return strings.EqualFold(id, r.ID)
}
