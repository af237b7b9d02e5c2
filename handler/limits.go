package handler

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
	// maxHeader bounds the header of a request, its first line included.
	maxHeader = 64 << 10

	// bodyTime is how long a caller may take to send a body, answerTime how long
	// to take an answer.
	bodyTime   = 2 * time.Minute
	answerTime = 2 * time.Minute

	// maxJSONDepth bounds how deeply a body may be nested. More than ten thousand
	// could not be encoded in an answer.
	maxJSONDepth = 512

	// maxName bounds the names of entities, operations and events in bytes.
	maxName = durable.MaxNameLength
)

// limitAnswer bounds how long taking a request's answer may last. An app's own
// routes are not bounded: they may stream, so that [unlimited] comes before each
// request.
func limitAnswer(c echo.Context) {
	c.Response().Before(func() {
		// A recorder does not support it, and a connection that is gone needs none.
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(answerTime))
	})
}

// unlimited takes back what limitAnswer did for the request before on the same
// connection.
func unlimited(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Time{})
		return next(c)
	}
}

// readBody returns a request's body, which must be JSON, as it is but for blanks
// around it; nil if it is empty.
func readBody(c echo.Context) (json.RawMessage, error) {
	text, err := bodyText(c)
	if err != nil {
		return nil, err
	}
	return parseJSON(text, invalidJSON)
}

// bodyText returns a request's body, which must come within bodyTime.
func bodyText(c echo.Context) ([]byte, error) {
	control := http.NewResponseController(c.Response())
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	text, err := readAll(c.Request())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errLateBody
	}
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) && !errors.Is(err, errBodies) {
		return nil, badRequest("The request body ends early or is badly chunked: %s.", secrets.Line(err))
	}
	// A deadline that passes later would be taken for a caller who is gone.
	_ = control.SetReadDeadline(time.Time{})
	if err == nil && !utf8.Valid(text) {
		err = badRequest("The request body must be valid UTF-8.")
	}
	return text, err
}

// tooDeep reports whether JSON is nested more deeply than maxJSONDepth.
func tooDeep(text []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > maxJSONDepth {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// parseJSON returns text, which must be JSON, as it is but for blanks around it;
// nil if it is empty. Invalid makes an answer of what is wrong with it.
func parseJSON(text []byte, invalid func(error) error) (json.RawMessage, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if len(text) == 0 {
		return nil, nil
	}
	if !json.Valid(text) {
		var any json.RawMessage
		return nil, invalid(json.Unmarshal(text, &any)) // it says why
	}
	if tooDeep(text) {
		return nil, badRequest("The JSON is nested more than %d deep.", maxJSONDepth)
	}
	return text, nil
}
