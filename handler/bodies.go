package handler

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

// errBodies refuses a body for which there is no room at the moment.
var errBodies = answerWith(http.StatusServiceUnavailable, errorBody{
	Message: "The app is busy with as many bytes of request bodies as it takes at once. Try again later.",
})

// errLateBody is the answer to who sends nothing more of a body.
var errLateBody = answerWith(http.StatusRequestTimeout, errorBody{
	Message: fmt.Sprintf("The request body did not come within %v.", bodyTime),
})

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

// A roomedBody is a body that takes room as it is read, until it is given back. What
// has not come takes none, so that callers who send nothing keep nobody out. One for
// which there is no more room fails at once: bodies that waited for each other's room
// would wait for ever.
type roomedBody struct {
	io.ReadCloser
	room   *bodyRoom
	taken  int64
	read   int64 // what has come, whether there was room for it or not
	answer http.ResponseWriter
	paced  bool // who sends nothing for bodyTime is given up
}

func (b *roomedBody) Read(p []byte) (int, error) {
	b.wait(time.Now().Add(bodyTime))
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case !b.room.take(int64(n)):
		b.room.left.Add(b.taken) // at once, or the others would fail, too
		b.taken, n, err = 0, 0, errBodies
	case b.paced && errors.Is(err, os.ErrDeadlineExceeded):
		err = errLateBody
	case err == io.EOF:
		b.wait(time.Time{}) // or its end would be taken for a caller who is gone
	}
	b.taken += int64(n)
	if err != nil && err != io.EOF {
		closeAfter(b.answer)
	}
	return n, err
}

// wait says until when to wait for more. A recorder does not support it.
func (b *roomedBody) wait(until time.Time) {
	if b.paced {
		_ = http.NewResponseController(b.answer).SetReadDeadline(until)
	}
}

// closeAfter ends the connection with the answer to a request whose body was not read,
// or the answer would wait for the rest of it.
func closeAfter(answer http.ResponseWriter) { answer.Header().Set(echo.HeaderConnection, "close") }

// limitBody bounds the body of a request, and the bodies of all of them. One whose
// length is known and for which there is no room now is refused before it is sent.
func (f *front) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Body == nil || r.Body == http.NoBody {
			return next(c)
		}
		if r.ContentLength > f.cfg.MaxBody {
			return &http.MaxBytesError{Limit: f.cfg.MaxBody}
		}
		if r.ContentLength > f.bodies.left.Load() {
			closeAfter(c.Response())
			return errBodies
		}
		body := &roomedBody{
			ReadCloser: http.MaxBytesReader(c.Response(), r.Body, f.cfg.MaxBody), room: &f.bodies, answer: c.Response(),
			paced: !isManagement(c), // there the time of the whole is bounded
		}
		defer func() {
			f.bodies.left.Add(body.taken)
			if body.read >= largeBody {
				f.bodies.freeSoon()
			}
		}()
		r.Body = body
		return next(c)
	}
}

// firstRead is how much memory the body of a request has at first.
const firstRead = 64 << 10

// readAll reads a request's body into memory that is as large as it is, if its length
// is known. The memory grows fourfold with what has come: of a long body that does not
// come there is little.
func readAll(r *http.Request) ([]byte, error) {
	var text []byte
	for {
		if len(text) == cap(text) {
			more := max(firstRead, 3*len(text)+1)                       // a round length has room for its end, too
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
