package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

const (
	// ContentTypeJSON is the content type of all answers with a body.
	ContentTypeJSON = "application/json; charset=utf-8"

	// RetryUnavailable is the Retry-After of status 503, in seconds.
	RetryUnavailable = "5"

	// HeaderInvocationID is a header that the host adds to forwarded requests (azure-functions-host:
	// Workers/Http/HttpWorkerConstants.cs).
	HeaderInvocationID = "X-Azure-Functions-InvocationId"
)

// RecoverPanics answers a panic in a route with status 500 and logs it with its stack. Otherwise the
// connection would break, and a proxying host would send the same request again.
func RecoverPanics(log *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
					panic(p) // net/http breaks connections with this panic
				}
				log.Error("panic in a route", "method", c.Request().Method, "path", c.Request().URL.Path,
					"requestId", RequestID(c), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				err = errPanicked
			}()
			return next(c)
		}
	}
}

// errPanicked is the error of a request whose route panicked. The panic is logged already.
var errPanicked = AnswerWith(http.StatusInternalServerError, ErrorBody{Message: messageInternal})

// Identify gives each request an ID and returns it in the answer. It uses the caller's ID, the ID of
// the host's invocation, or a new ID.
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

// RequestID returns the ID that [Identify] gave a request.
func RequestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// AnswerErrors returns an error handler that answers a request with its error, and logs unexpected
// errors.
func AnswerErrors(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		a := answerTo(err, IsManagement(c))
		gone := c.Request().Context().Err() != nil
		if a.status >= http.StatusInternalServerError && a.status != http.StatusServiceUnavailable && !gone && !errors.Is(err, errPanicked) {
			log.Log(c.Request().Context(), severity(err), "request failed", "method", c.Request().Method, "path", c.Request().URL.Path,
				"status", a.status, "requestId", RequestID(c), "error", secrets.Line(err))
		}
		if c.Response().Committed {
			return // too late for an answer
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
			log.Debug("response not delivered", "requestId", RequestID(c), "error", err)
		}
	}
}

// severity returns the log level of a failed request. A mistake of the caller is not an error of the
// app, even if .NET answers it with status 500 or 501.
func severity(err error) slog.Level {
	if errors.As(err, new(*durable.InstanceStateError)) || errors.Is(err, durable.ErrNotSupported) {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// WriteJSON answers with v as JSON. Unlike echo's method it does not escape <, > and & in URLs.
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

// An ErrorBody is the error body of the .NET extension
// (WebJobs.Extensions.DurableTask/HttpRequestMessageExtensions.cs, CreateErrorResponse). StackTrace is
// always empty, because callers cannot use it.
type ErrorBody struct {
	Message string `json:"Message"`
	*ErrorCause
	// InstancesDeleted is set by [WithPurged].
	InstancesDeleted *int `json:"instancesDeleted,omitempty"`
}

// An ErrorCause is the exception in an [ErrorBody].
type ErrorCause struct {
	ExceptionMessage string `json:"ExceptionMessage"`
	ExceptionType    string `json:"ExceptionType"`
	StackTrace       string `json:"StackTrace"`
}

// WithCause returns a body with message and err as the exception.
func WithCause(message string, err error) ErrorBody {
	return ErrorBody{Message: message, ErrorCause: &ErrorCause{ExceptionMessage: secrets.Line(err), ExceptionType: exceptionType(err)}}
}

// exceptionType returns the .NET exception type for an error. Some callers check it.
func exceptionType(err error) string {
	var (
		syntax *json.SyntaxError
		state  *durable.InstanceStateError
		exists *provider.InstanceExistsError
		outage *taskhub.OutageError
	)
	switch {
	case errors.As(err, &syntax):
		return "Newtonsoft.Json.JsonReaderException"
	case errors.As(err, &state):
		return "System.InvalidOperationException"
	case errors.As(err, &exists):
		return "DurableTask.Core.Exceptions.OrchestrationAlreadyExistsException"
	case errors.Is(err, durable.ErrInstanceNotFound):
		return "System.ArgumentException"
	case errors.Is(err, durable.ErrNotSupported):
		return "System.NotSupportedException"
	case errors.As(err, &outage):
		return "DurableTask.AzureStorage.Storage.DurableTaskStorageException"
	}
	return "System.Exception"
}

// The extension's messages for errors that it does not distinguish.
const (
	messageBadArgument = "One or more of the arguments submitted is incorrect"
	messageInternal    = "Something went wrong while processing your request"
)

// An answerError is an error with its HTTP answer.
type answerError struct {
	status int
	body   ErrorBody
}

func (e *answerError) Error() string { return e.body.Message }

// AnswerWith returns an error that is answered with status and body.
func AnswerWith(status int, body ErrorBody) error { return &answerError{status, body} }

// A purgeError is the error of a purge that has removed some instances.
type purgeError struct {
	error
	purged int
}

func (e *purgeError) Unwrap() error { return e.error }

// WithPurged adds the number of purged instances to the answer for err.
func WithPurged(err error, purged int) error { return &purgeError{err, purged} }

// BadRequest returns an error with status 400. The message is a sentence.
func BadRequest(format string, args ...any) error {
	return &answerError{http.StatusBadRequest, ErrorBody{Message: fmt.Sprintf(format, args...)}}
}

// BadArgument returns an error with status 400 that corresponds to .NET's ArgumentException. Python's
// client reads the exception's message when a start is refused (HttpApiHandler.cs, HandleRequestAsync).
func BadArgument(format string, args ...any) error {
	cause := &ErrorCause{ExceptionMessage: fmt.Sprintf(format, args...), ExceptionType: "System.ArgumentException"}
	return &answerError{http.StatusBadRequest, ErrorBody{Message: messageBadArgument, ErrorCause: cause}}
}

// invalidJSON returns the error for a request body that is not valid JSON.
func invalidJSON(err error) error {
	return &answerError{http.StatusBadRequest, WithCause("Invalid JSON content", err)}
}

// An answer is an HTTP status with an optional body.
type answer struct {
	status int
	body   *ErrorBody
}

// answerTo maps an error to an HTTP answer. The management API always returns the error's text, like
// the extension. The app's own routes return it only for the error types below.
func answerTo(err error, management bool) answer {
	if e, ok := errors.AsType[*purgeError](err); ok {
		a := answerTo(e.error, management)
		body := ErrorBody{Message: http.StatusText(a.status)}
		if a.body != nil {
			body = *a.body
		}
		body.InstancesDeleted = &e.purged
		return answer{a.status, &body}
	}
	if e, ok := errors.AsType[*answerError](err); ok {
		return answer{e.status, &e.body}
	}
	if e, ok := errors.AsType[*taskhub.UnavailableError](err); ok {
		return answer{http.StatusServiceUnavailable, &ErrorBody{Message: e.Error()}}
	}
	if e, ok := errors.AsType[*provider.InstanceExistsError](err); ok {
		return answer{http.StatusConflict, &ErrorBody{Message: e.Error()}}
	}
	if e, ok := errors.AsType[*durable.InstanceIDError](err); ok {
		return answer{http.StatusBadRequest, &ErrorBody{Message: e.Error()}}
	}
	if e, ok := errors.AsType[*durable.TooLongError](err); ok {
		return answer{http.StatusBadRequest, &ErrorBody{Message: e.Error()}}
	}
	if e, ok := errors.AsType[*durable.TextError](err); ok {
		return answer{http.StatusBadRequest, &ErrorBody{Message: e.Error()}}
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return answer{http.StatusRequestEntityTooLarge, &ErrorBody{Message: fmt.Sprintf("The request body must not exceed %d bytes.", e.Limit)}}
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		return answer{e.Code, &ErrorBody{Message: echoMessage(e)}}
	}
	if _, ok := errors.AsType[*taskhub.OutageError](err); ok {
		body := WithCause(outageMessage(err), err)
		return answer{http.StatusServiceUnavailable, &body}
	}
	switch {
	case errors.Is(err, durable.ErrInstanceNotFound):
		return answer{status: http.StatusNotFound}
	case errors.Is(err, durable.ErrInstanceEnded):
		return answer{status: http.StatusGone}
	case errors.Is(err, durable.ErrLocksReleased):
		return answer{http.StatusPreconditionFailed, &ErrorBody{Message: secrets.Line(err)}}
	case errors.Is(err, durable.ErrNotSupported):
		return answer{http.StatusNotImplemented, &ErrorBody{Message: secrets.Line(err)}}
	}
	if e, ok := errors.AsType[*durable.InstanceStateError](err); ok {
		body := WithCause(messageInternal, e)
		return answer{http.StatusInternalServerError, &body}
	}
	body := ErrorBody{Message: messageInternal}
	if management {
		body = WithCause(messageInternal, err)
	}
	return answer{http.StatusInternalServerError, &body}
}

// StatusOf returns the HTTP status of an error and a message for a page.
func StatusOf(err error) (status int, message string) {
	a := answerTo(err, true)
	if a.body == nil {
		return a.status, http.StatusText(a.status) + "."
	}
	if a.body.ErrorCause != nil {
		return a.status, strings.TrimSuffix(a.body.Message, ".") + ": " + a.body.ExceptionMessage
	}
	return a.status, a.body.Message
}

// outageMessage returns a message about an outage of the hub's storage.
func outageMessage(err error) string {
	_, damaged := errors.AsType[*embedded.CorruptError](err)
	switch {
	case damaged:
		return "The part of the task hub's file that the request needs is damaged. Restore it from a backup, or use another file."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "The disk of the task hub's file is full. Free space and try again."
	case taskhub.IsDamaged(err):
		return "A part of the task hub that the request needs is damaged or missing."
	case taskhub.IsStopped(err):
		return "The task hub was deleted. Restart the app to create it again."
	case taskhub.IsDeletedHub(err):
		return "The task hub was deleted. The app creates it again: try again later."
	case taskhub.IsUncertain(err):
		return "The request may or may not have happened. Check the instance, or try again."
	case errors.Is(err, fs.ErrNotExist):
		return "The task hub's file was deleted or moved. Restore it, or restart the app."
	}
	return "The storage of the task hub cannot be reached or does not answer. Try again later."
}

// echoMessage returns the message in an error of echo or of a route.
func echoMessage(e *echo.HTTPError) string {
	switch m := e.Message.(type) {
	case string:
		return m
	case error:
		return m.Error()
	case nil:
		return http.StatusText(e.Code)
	}
	return fmt.Sprint(e.Message)
}
