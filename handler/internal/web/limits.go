package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/labstack/echo/v4"
)

// What callers of the management API can take up.
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

// LimitAnswer bounds how long taking a request's answer may last. An app's own
// routes are not bounded: they may stream, so that [unlimited] comes before each
// request.
func LimitAnswer(c echo.Context) {
	c.Response().Before(func() {
		// A recorder does not support it, and a connection that is gone needs none.
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(AnswerTime))
	})
}

// Unlimited takes back what limitAnswer did for the request before on the same
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
