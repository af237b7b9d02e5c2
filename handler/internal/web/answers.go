package web

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

const (
	// ContentTypeJSON is the content type of all answers with a body.
	ContentTypeJSON = "application/json; charset=utf-8"

	// RetryUnavailable is what a caller is told to wait, in seconds, when
	// nothing can be served.
	RetryUnavailable = "5"

	// HeaderInvocationID is a header that the host adds to requests that it passes on
	// (azure-functions-host: Workers/Http/HttpWorkerConstants.cs).
	HeaderInvocationID = "X-Azure-Functions-InvocationId"
)

// RecoverPanics answers a panic in a route with status 500 and logs it with its
// stack. Without it the connection would break, and a proxying host would send
// the same request again.
func RecoverPanics(log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
					panic(p) // net/http's way to break a connection on purpose
				}
				log.Error("panic in a route", "method", c.Request().Method, "path", c.Request().URL.Path,
					"requestId", RequestID(c), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				err = errPanicked
			}()
			return next(c)
		}
	}
}

// errPanicked is what a request ends with whose route panicked, after that was
// logged.
var errPanicked = AnswerWith(http.StatusInternalServerError, ErrorBody{Message: messageInternal})

// Identify gives each request an ID: the caller's, else that of the host's
// invocation, else a new one. The answer tells it.
func Identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Request().Header
		id := header.Get(echo.HeaderXRequestID)
		if id == "" || len(id) > 128 {
			id = header.Get(HeaderInvocationID)
		}
		if id == "" || len(id) > 128 {
			id = uuid.NewString()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

// RequestID returns the ID of a request, which [Identify] gave it.
func RequestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// AnswerErrors returns what answers a request that ended with an error, and logs it.
func AnswerErrors(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		a := answerTo(err, IsManagement(c))
		gone := c.Request().Context().Err() != nil
		if a.status >= http.StatusInternalServerError && a.status != http.StatusServiceUnavailable && !gone && !errors.Is(err, errPanicked) {
			log.Error("request failed", "method", c.Request().Method, "path", c.Request().URL.Path,
				"status", a.status, "requestId", RequestID(c), "error", secrets.Line(err))
		}
		if c.Response().Committed {
			return // too late to say anything
		}
		if a.status == http.StatusServiceUnavailable {
			c.Response().Header().Set(echo.HeaderRetryAfter, RetryUnavailable)
		}
		if a.body == nil {
			err = c.NoContent(a.status)
		} else {
			err = WriteJSON(c, a.status, a.body)
		}
		if err != nil {
			log.Debug("answer not delivered", "requestId", RequestID(c), "error", err)
		}
	}
}

// WriteJSON answers with v as JSON. Unlike echo's own method it leaves <, > and
// & as they are, which URLs need to be legible.
func WriteJSON(c echo.Context, status int, v any) error {
	text, err := jsontext.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if c.Request().Method == http.MethodHead {
		text = nil
	}
	return c.Blob(status, ContentTypeJSON, text)
}
