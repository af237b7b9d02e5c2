package handler

import (
	"bytes"
	"io"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

// The defaults of what bodies of requests may take up.
const (
	// DefaultMaxRequestBody is what the host lets through
	// (azure-functions-host: FUNCTIONS_REQUEST_BODY_SIZE_LIMIT).
	DefaultMaxRequestBody = 100 << 20
	// DefaultMaxRequestBodies is how much all bodies have that are being answered.
	DefaultMaxRequestBodies = 256 << 20
)

// errBodies refuses a body for which there is no room at the moment.
var errBodies = &answerError{http.StatusServiceUnavailable, errorBody{
	Message: "The app is busy with as many bytes of request bodies as it takes at once. Try again later.",
}}

// A bodyRoom is the room for the bodies of all requests that are being answered.
type bodyRoom struct {
	left    atomic.Int64
	freeing atomic.Bool // memory will be given back
}

const (
	// largeBody is from which length on the memory of a body is given back to the
	// system, which the garbage collector does only when as much again is in use.
	largeBody = 16 << 20
	// freeAfter is how long after the request: what it started uses the body, too.
	freeAfter = 5 * time.Second
)

func (b *bodyRoom) freeSoon() {
	if b.freeing.CompareAndSwap(false, true) {
		time.AfterFunc(freeAfter, func() {
			b.freeing.Store(false)
			debug.FreeOSMemory()
		})
	}
}

func (b *bodyRoom) take(n int64) bool {
	if b.left.Add(-n) >= 0 {
		return true
	}
	b.left.Add(n)
	return false
}

// A roomedBody is a body that takes room as it is read, until it is given back.
type roomedBody struct {
	io.ReadCloser
	room        *bodyRoom
	taken, read int64
}

func (b *roomedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if more := b.read - b.taken; more > 0 {
		if !b.room.take(more) {
			return 0, errBodies
		}
		b.taken = b.read
	}
	return n, err
}

// limitBody bounds the body of a request, and the bodies of all of them. One whose
// length is known gets its room at once, or is refused before it is sent.
func (s *Server) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Body == nil || r.Body == http.NoBody {
			return next(c)
		}
		if r.ContentLength > s.cfg.MaxRequestBody {
			return &http.MaxBytesError{Limit: s.cfg.MaxRequestBody}
		}
		body := &roomedBody{ReadCloser: http.MaxBytesReader(c.Response(), r.Body, s.cfg.MaxRequestBody), room: &s.bodies}
		if r.ContentLength > 0 {
			if !s.bodies.take(r.ContentLength) {
				return errBodies
			}
			body.taken = r.ContentLength
		}
		defer func() {
			s.bodies.left.Add(body.taken)
			if body.taken >= largeBody {
				s.bodies.freeSoon()
			}
		}()
		r.Body = body
		return next(c)
	}
}

// readAll reads a request's body into memory that is as large as it is.
func readAll(r *http.Request) ([]byte, error) {
	var text bytes.Buffer
	if r.ContentLength > 0 { // no more than limitBody has found room for
		text.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := text.ReadFrom(r.Body)
	return text.Bytes(), err
}
