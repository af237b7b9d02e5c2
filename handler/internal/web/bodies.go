package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/labstack/echo/v4"
)

// ErrBodies is the error of a body for which there is no memory at the moment.
var ErrBodies = AnswerWith(http.StatusServiceUnavailable, ErrorBody{
	Message: "The app is busy with as many bytes of request bodies as it takes at once. Try again later.",
})

// errLateBody is the error of a body that does not arrive in time.
var errLateBody = AnswerWith(http.StatusRequestTimeout, ErrorBody{
	Message: fmt.Sprintf("The request body did not come within %v.", BodyTime),
})

// A BodyRoom bounds the memory of the bodies of all requests in flight.
type BodyRoom struct {
	Left    atomic.Int64
	Freeing atomic.Bool // memory will be given back
}

const (
	// LargeBody is the length from which on the memory of a body is returned to the
	// system at once. The garbage collector does so only when as much again is in use.
	LargeBody = 16 << 20
	// freeAfter is the time from the request to that: what it started uses the body, too.
	freeAfter = 5 * time.Second
)

func (b *BodyRoom) freeSoon() {
	if b.Freeing.CompareAndSwap(false, true) {
		time.AfterFunc(freeAfter, func() {
			b.Freeing.Store(false)
			debug.FreeOSMemory()
		})
	}
}

func (b *BodyRoom) take(n int64) bool {
	if b.Left.Add(-n) >= 0 {
		return true
	}
	b.Left.Add(n)
	return false
}

// A RoomedBody is a body that takes room as it is read, until the request ends. Callers who
// send nothing take no room. A body for which there is no room left fails at once: bodies
// that wait for each other would wait for ever.
type RoomedBody struct {
	io.ReadCloser
	Room   *BodyRoom
	Taken  int64
	read   int64 // what has come, whether there was room for it or not
	Answer http.ResponseWriter
	paced  bool // fails when nothing arrives for bodyTime
}

func (b *RoomedBody) Read(p []byte) (int, error) {
	b.wait(time.Now().Add(BodyTime))
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case !b.Room.take(int64(n)):
		b.Room.Left.Add(b.Taken) // at once, or the others would fail, too
		b.Taken, n, err = 0, 0, ErrBodies
	case b.paced && errors.Is(err, os.ErrDeadlineExceeded):
		err = errLateBody
	case err == io.EOF:
		b.wait(time.Time{}) // or its end would be taken for a caller who is gone
	}
	b.Taken += int64(n)
	if err != nil && err != io.EOF {
		closeAfter(b.Answer)
	}
	return n, err
}

// wait sets the deadline of the next read. A recorder does not support it.
func (b *RoomedBody) wait(until time.Time) {
	if b.paced {
		_ = http.NewResponseController(b.Answer).SetReadDeadline(until)
	}
}

// closeAfter closes the connection after the answer to a request whose body was not read,
// since the answer would wait for the rest of it.
func closeAfter(answer http.ResponseWriter) { answer.Header().Set(echo.HeaderConnection, "close") }

// FirstRead is the initial size of the memory for a body.
const FirstRead = 64 << 10

// ReadAll reads a request's body into memory of its length, if that is known. The memory
// grows fourfold with what has arrived, so that a long body that does not arrive takes
// little.
func ReadAll(r *http.Request) ([]byte, error) {
	var text []byte
	for {
		if len(text) == cap(text) {
			more := max(FirstRead, 3*len(text)+1)                       // a round length has room for its end, too
			if left := int(r.ContentLength) - len(text) + 1; left > 0 { // one more, to see the end
				more = min(more, left)
			}
			text = append(make([]byte, 0, len(text)+more), text...)
		}
		n, err := r.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case err == io.EOF:
			return text, nil
		case err != nil:
			return nil, err
		}
	}
}

// Limits of requests to the management API.
const (
	// MaxHeader bounds the header of a request, its first line included.
	MaxHeader = 64 << 10

	// BodyTime is how long a caller may take to send a body, answerTime how long
	// to take an answer.
	BodyTime   = 2 * time.Minute
	AnswerTime = 2 * time.Minute

	// MaxJSONDepth bounds how deeply a body may be nested. More than ten thousand
	// could not be encoded in an answer.
	MaxJSONDepth = 512

	// MaxName bounds the names of entities, operations and events in bytes.
	MaxName = durable.MaxNameLength
)

// LimitAnswer bounds the time to send a request's answer. The app's own routes may stream
// and have no bound: [Unlimited] comes before each request.
func LimitAnswer(c echo.Context) {
	c.Response().Before(func() {
		// A recorder does not support it, and a connection that is gone needs none.
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(AnswerTime))
	})
}

// Unlimited removes the bound that [LimitAnswer] set for the previous request on the
// connection.
func Unlimited(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Time{})
		return next(c)
	}
}

// ReadBody returns a request's body, which must be JSON, as it is but for blanks
// around it; nil if it is empty.
func ReadBody(c echo.Context) (json.RawMessage, error) {
	text, err := BodyText(c)
	if err != nil {
		return nil, err
	}
	return ParseJSON(text, invalidJSON)
}

// BodyText returns a request's body, which must come within bodyTime.
func BodyText(c echo.Context) ([]byte, error) {
	control := http.NewResponseController(c.Response())
	_ = control.SetReadDeadline(time.Now().Add(BodyTime))
	text, err := ReadAll(c.Request())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errLateBody
	}
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) && !errors.Is(err, ErrBodies) {
		return nil, BadRequest("The request body ends early or is badly chunked: %s.", secrets.Line(err))
	}
	// A deadline that passes later would be taken for a caller who is gone.
	_ = control.SetReadDeadline(time.Time{})
	if err == nil && !utf8.Valid(text) {
		err = BadRequest("The request body must be valid UTF-8.")
	}
	return text, err
}

// TooDeep reports whether JSON is nested more deeply than maxJSONDepth.
func TooDeep(text []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > MaxJSONDepth {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// ParseJSON returns text, which must be JSON, as it is but for blanks around it;
// nil if it is empty. Invalid makes an answer of what is wrong with it.
func ParseJSON(text []byte, invalid func(error) error) (json.RawMessage, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if len(text) == 0 {
		return nil, nil
	}
	if !json.Valid(text) {
		var any json.RawMessage
		return nil, invalid(json.Unmarshal(text, &any)) // it says why
	}
	if TooDeep(text) {
		return nil, BadRequest("The JSON is nested more than %d deep.", MaxJSONDepth)
	}
	return text, nil
}
