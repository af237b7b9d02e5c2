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

// ErrBodyMemory is the error of a body for which no memory is left at the moment.
var ErrBodyMemory = AnswerWith(http.StatusServiceUnavailable, ErrorBody{
	Message: "The app is processing too many large request bodies. Try again later.",
})

// errBodyTimeout is the error of a body that does not arrive in time.
var errBodyTimeout = AnswerWith(http.StatusRequestTimeout, ErrorBody{
	Message: fmt.Sprintf("The request body did not arrive within %v.", BodyTimeout),
})

// A BodyMemory limits the memory of the bodies of all requests in flight.
type BodyMemory struct {
	Available atomic.Int64
	IsFreeing atomic.Bool // memory will be returned to the system soon
}

const (
	// LargeBody is the size of a body from which its memory is returned to the system soon. By itself,
	// the garbage collector waits until the process uses as much again.
	LargeBody = 16 << 20
	// freeAfter is the delay between the request and the return of its memory. The work that the
	// request started may use the body, too.
	freeAfter = 5 * time.Second
)

func (b *BodyMemory) freeSoon() {
	if b.IsFreeing.CompareAndSwap(false, true) {
		time.AfterFunc(freeAfter, func() {
			b.IsFreeing.Store(false)
			debug.FreeOSMemory()
		})
	}
}

func (b *BodyMemory) reserve(n int64) bool {
	if b.Available.Add(-n) >= 0 {
		return true
	}
	b.Available.Add(n)
	return false
}

// A ReservingBody is a body that reserves memory while it is read, until the request ends. A caller
// that sends nothing reserves none. If no memory is left, the body fails at once: bodies that wait for
// each other would wait forever.
type ReservingBody struct {
	io.ReadCloser
	Memory   *BodyMemory
	Reserved int64
	read     int64 // received bytes, including those without room
	Answer   http.ResponseWriter
	paced    bool // fails if nothing arrives for BodyTimeout
}

func (b *ReservingBody) Read(p []byte) (int, error) {
	b.wait(time.Now().Add(BodyTimeout))
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case !b.Memory.reserve(int64(n)):
		b.Memory.Available.Add(b.Reserved) // release at once, or other bodies would fail, too
		b.Reserved, n, err = 0, 0, ErrBodyMemory
	case b.paced && errors.Is(err, os.ErrDeadlineExceeded):
		err = errBodyTimeout
	case err == io.EOF:
		b.wait(time.Time{}) // otherwise the deadline would look like a disconnected caller
	}
	b.Reserved += int64(n)
	if err != nil && err != io.EOF {
		closeAfter(b.Answer)
	}
	return n, err
}

// wait sets the deadline of the next read. A recorder does not support deadlines.
func (b *ReservingBody) wait(until time.Time) {
	if b.paced {
		_ = http.NewResponseController(b.Answer).SetReadDeadline(until)
	}
}

// closeAfter closes the connection after the answer to a request whose body was not read. Otherwise the
// server would read the rest of the body first.
func closeAfter(answer http.ResponseWriter) { answer.Header().Set(echo.HeaderConnection, "close") }

// InitialBuffer is the initial buffer size for a body.
const InitialBuffer = 64 << 10

// ReadAll reads a request's body. If the length is known, the final buffer has that size. The buffer
// grows fourfold as data arrives, so a long body that does not arrive uses little memory.
func ReadAll(r *http.Request) ([]byte, error) {
	var text []byte
	for {
		if len(text) == cap(text) {
			more := max(InitialBuffer, 3*len(text)+1)                   // 1 extra byte for the end of a body with a power-of-two length
			if left := int(r.ContentLength) - len(text) + 1; left > 0 { // 1 extra byte to detect the end
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
	// MaxHeader is the largest header of a request in bytes, including the request line.
	MaxHeader = 64 << 10

	// BodyTimeout limits the time to receive a body, AnswerTimeout the time to send an answer.
	BodyTimeout   = 2 * time.Minute
	AnswerTimeout = 2 * time.Minute

	// MaxJSONDepth is the largest nesting depth of a body. Depths above ten thousand could not be
	// encoded in an answer.
	MaxJSONDepth = 512

	// MaxName is the largest length of the names of entities, operations and events, in bytes.
	MaxName = durable.MaxNameLength
)

// LimitAnswer limits the time to send a request's answer. The app's own routes may stream and have no
// limit; see [Unlimited].
func LimitAnswer(c echo.Context) {
	c.Response().Before(func() {
		// A recorder does not support deadlines. A closed connection needs none.
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(AnswerTimeout))
	})
}

// Unlimited removes the limit that [LimitAnswer] set for the previous request on the same connection.
func Unlimited(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Time{})
		return next(c)
	}
}

// ReadBody returns a request's body, which must be JSON, without surrounding white space. It returns
// nil for an empty body.
func ReadBody(c echo.Context) (json.RawMessage, error) {
	text, err := BodyText(c)
	if err != nil {
		return nil, err
	}
	return ParseJSON(text, invalidJSON)
}

// BodyText returns a request's body, which must arrive within [BodyTimeout].
func BodyText(c echo.Context) ([]byte, error) {
	control := http.NewResponseController(c.Response())
	_ = control.SetReadDeadline(time.Now().Add(BodyTimeout))
	text, err := ReadAll(c.Request())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errBodyTimeout
	}
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) && !errors.Is(err, ErrBodyMemory) {
		return nil, BadRequest("The request body is incomplete or its chunks are not valid: %s.", secrets.Line(err))
	}
	// Reset the deadline. If it passed later, it would look like a disconnected caller.
	_ = control.SetReadDeadline(time.Time{})
	if err == nil && !utf8.Valid(text) {
		err = BadRequest("The request body must be valid UTF-8.")
	}
	return text, err
}

// IsTooDeep reports whether JSON is nested more deeply than [MaxJSONDepth].
func IsTooDeep(text []byte) bool {
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

// ParseJSON returns text, which must be JSON, without surrounding white space. It returns nil for empty
// text. invalid converts the syntax error to the returned error.
func ParseJSON(text []byte, invalid func(error) error) (json.RawMessage, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if len(text) == 0 {
		return nil, nil
	}
	if !json.Valid(text) {
		var any json.RawMessage
		return nil, invalid(json.Unmarshal(text, &any)) // returns the reason
	}
	if IsTooDeep(text) {
		return nil, BadRequest("The JSON is nested more than %d deep.", MaxJSONDepth)
	}
	return text, nil
}
