package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/labstack/echo/v4"
)

// An ErrorBody is how the .NET extension tells an error
// (WebJobs.Extensions.DurableTask/HttpRequestMessageExtensions.cs,
// CreateErrorResponse). StackTrace is always empty: a caller has no use for it.
type ErrorBody struct {
	Message string `json:"Message"`
	*ErrorCause
}

// An ErrorCause is the part of an [ErrorBody] about an exception.
type ErrorCause struct {
	ExceptionMessage string `json:"ExceptionMessage"`
	ExceptionType    string `json:"ExceptionType"`
	StackTrace       string `json:"StackTrace"`
}

// WithCause returns the body that tells message and err.
func WithCause(message string, err error) ErrorBody {
	return ErrorBody{Message: message, ErrorCause: &ErrorCause{ExceptionMessage: secrets.Line(err), ExceptionType: exceptionType(err)}}
}

// exceptionType returns what an error is in .NET, since callers that look at the
// type know those names.
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

// The extension's words for errors it does not tell apart.
const (
	messageBadArgument = "One or more of the arguments submitted is incorrect"
	messageInternal    = "Something went wrong while processing your request"
)

// An answerError is an error whose HTTP answer is known where it comes about.
type answerError struct {
	status int
	body   ErrorBody
}

func (e *answerError) Error() string { return e.body.Message }

// AnswerWith returns an error that is answered with a status and a body.
func AnswerWith(status int, body ErrorBody) error { return &answerError{status, body} }

// BadRequest refuses a request with a sentence that says why.
func BadRequest(format string, args ...any) error {
	return &answerError{http.StatusBadRequest, ErrorBody{Message: fmt.Sprintf(format, args...)}}
}

// BadArgument refuses what is an ArgumentException in .NET, which callers look
// for: Python's client reads the exception's message when a start is refused
// (HttpApiHandler.cs, HandleRequestAsync).
func BadArgument(format string, args ...any) error {
	cause := &ErrorCause{ExceptionMessage: fmt.Sprintf(format, args...), ExceptionType: "System.ArgumentException"}
	return &answerError{http.StatusBadRequest, ErrorBody{Message: messageBadArgument, ErrorCause: cause}}
}

// invalidJSON refuses a request body.
func invalidJSON(err error) error {
	return &answerError{http.StatusBadRequest, WithCause("Invalid JSON content", err)}
}

// An answer is an HTTP status and what goes with it: a body, or none.
type answer struct {
	status int
	body   *ErrorBody
}

// answerTo maps an error to an HTTP answer. Errors of the app's own routes are
// not told to callers unless they are of a kind that is made for it; those of
// the management API are, as the extension does.
func answerTo(err error, management bool) answer {
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

// outageMessage says what keeps the hub's storage from serving, as far as it is
// known.
func outageMessage(err error) string {
	_, damaged := errors.AsType[*embedded.CorruptError](err)
	switch {
	case damaged:
		return "The task hub's file is damaged where it is needed. Restore it from a backup, or use another file."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "There is no room on the disk for the task hub's file. Make room, and try again."
	case taskhub.IsDeletedHub(err):
		return "The task hub was deleted. It is made again: try again later."
	case errors.Is(err, fs.ErrNotExist):
		return "The task hub's file was deleted or moved. Put it back, or restart the app."
	}
	return "The storage of the task hub cannot be reached or does not answer. Try again later."
}

// echoMessage returns the sentence in an error that echo or a route made.
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
