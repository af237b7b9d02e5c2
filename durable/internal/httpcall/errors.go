package httpcall

import (
	"fmt"
	"time"
)

// A RequestError says that a request cannot be sent, whatever the time.
type RequestError struct{ Reason string }

func (e *RequestError) Error() string { return "the request cannot be sent: " + e.Reason }

// A TimeoutError says that a request took too long.
type TimeoutError struct {
	Request string
	After   time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s: no response after %v", e.Request, e.After)
}

// A ContentError says that a response's body is larger than allowed.
type ContentError struct {
	Request string
	Limit   int64
}

func (e *ContentError) Error() string {
	return fmt.Sprintf("%s: the response has more than the %d bytes that it may have; "+
		"fetch so much in an activity of your own, or raise the limit", e.Request, e.Limit)
}
