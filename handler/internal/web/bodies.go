package web

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

// ErrBodies refuses a body for which there is no room at the moment.
var ErrBodies = AnswerWith(http.StatusServiceUnavailable, ErrorBody{
	Message: "The app is busy with as many bytes of request bodies as it takes at once. Try again later.",
})

// errLateBody is the answer to who sends nothing more of a body.
var errLateBody = AnswerWith(http.StatusRequestTimeout, ErrorBody{
	Message: fmt.Sprintf("The request body did not come within %v.", BodyTime),
})

// A BodyRoom is the room for the bodies of all requests that are being answered.
type BodyRoom struct {
	Left    atomic.Int64
	Freeing atomic.Bool // memory will be given back
}

const (
	// LargeBody is from which length on the memory of a body is given back to the
	// system, which the garbage collector does only when as much again is in use.
	LargeBody = 16 << 20
	// freeAfter is how long after the request: what it started uses the body, too.
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

// A RoomedBody is a body that takes room as it is read, until it is given back. What
// has not come takes none, so that callers who send nothing keep nobody out. One for
// which there is no more room fails at once: bodies that waited for each other's room
// would wait for ever.
type RoomedBody struct {
	io.ReadCloser
	Room   *BodyRoom
	Taken  int64
	read   int64 // what has come, whether there was room for it or not
	Answer http.ResponseWriter
	paced  bool // who sends nothing for bodyTime is given up
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

// wait says until when to wait for more. A recorder does not support it.
func (b *RoomedBody) wait(until time.Time) {
	if b.paced {
		_ = http.NewResponseController(b.Answer).SetReadDeadline(until)
	}
}

// closeAfter ends the connection with the answer to a request whose body was not read,
// or the answer would wait for the rest of it.
func closeAfter(answer http.ResponseWriter) { answer.Header().Set(echo.HeaderConnection, "close") }

// FirstRead is how much memory the body of a request has at first.
const FirstRead = 64 << 10

// ReadAll reads a request's body into memory that is as large as it is, if its length
// is known. The memory grows fourfold with what has come: of a long body that does not
// come there is little.
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
