package httpcall

import (
	"fmt"
	"time"
)

// RequestError reports an invalid request. A retry cannot succeed.
type RequestError struct{ Reason string }

func (e *RequestError) Error() string { return "the request cannot be sent: " + e.Reason }

// TimeoutError reports a request without a response within its timeout.
type TimeoutError struct {
	Request string
	After   time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s: no response after %v", e.Request, e.After)
}

// ContentError reports a response whose body exceeds the limit.
type ContentError struct {
	Request string
	Limit   int64
}

func (e *ContentError) Error() string {
	return fmt.Sprintf("%s: the response exceeds the limit of %d bytes; "+
		"raise the limit, or fetch large content in your own activity", e.Request, e.Limit)
}
