package handler

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

const (
	contentTypeJSON = "application/json; charset=utf-8"

	// startPatience is how long a request waits for an app that has just
	// started to reach its storage.
	startPatience = 10 * time.Second

	// retryUnavailable is what a caller is told to wait, in seconds, when
	// nothing can be served.
	retryUnavailable = "5"

	// Headers that the host adds to what it passes on
	// (azure-functions-host: Workers/Http/HttpWorkerConstants.cs).
	headerInvocationID = "X-Azure-Functions-InvocationId"
)

// newEcho returns an echo that answers everything as this package means it,
// with no routes yet.
func (s *Server) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard)
	e.HTTPErrorHandler = s.fail
	e.Pre(s.recoverPanics, unlimited, s.canonicalPath)
	e.Use(identify, joinTrace, s.refusePages, s.gate, s.limitBody, s.linksFor)
	e.RouteNotFound("/*", s.notFound)
	return e
}

// recoverPanics answers a panic in a route with status 500 and logs it with its
// stack. Without it the connection would break, and a proxying host would send
// the same request again.
func (s *Server) recoverPanics(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
				panic(p) // net/http's way to break a connection on purpose
			}
			s.logger.Error("panic in a route", "method", c.Request().Method, "path", c.Request().URL.Path,
				"requestId", requestID(c), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errPanicked
		}()
		return next(c)
	}
}

// errPanicked is what a request ends with whose route panicked, after that was
// logged.
var errPanicked = &answerError{http.StatusInternalServerError, errorBody{Message: messageInternal}}

// identify gives each request an ID: the caller's, else that of the host's
// invocation, else a new one. The answer tells it.
func identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Request().Header
		id := header.Get(echo.HeaderXRequestID)
		if id == "" || len(id) > 128 {
			id = header.Get(headerInvocationID)
		}
		if id == "" || len(id) > 128 {
			id = uuid.NewString()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

func requestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// gate answers GET / at once, whatever else is the case: the host takes an
// answer for the sign that the handler is up, and asks again later to measure
// it (azure-functions-host: Workers/Http/DefaultHttpWorkerService.cs). So are
// requests that ask how the app is. All others get status 503 while there is
// nothing to serve them with, and the reason if they may know it.
func (s *Server) gate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return s.alive(c)
		}
		if s.asksHowItIs(c) {
			return next(c)
		}
		if err := s.state.Await(r.Context(), startPatience); err != nil {
			return s.forCaller(r, err)
		}
		return next(c)
	}
}

// asksHowItIs reports whether a request is one that needs no hub.
func (s *Server) asksHowItIs(c echo.Context) bool {
	if path := c.Request().URL.Path; path == livePath || path == readyPath {
		return !s.cfg.BehindHost
	}
	if !isManagement(c) {
		return false
	}
	route, _ := s.management.route(c)
	return route != nil && route.always
}

// forCaller returns err, or one without its reason for who lacks the key.
func (s *Server) forCaller(r *http.Request, err error) error {
	if s.management.access.full(r) {
		return err
	}
	return &taskhub.UnavailableError{Reason: "The app cannot serve now. A request with the key gets the reason."}
}

// alive says how the app is.
func (s *Server) alive(c echo.Context) error {
	body := struct {
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}{Status: "ready"}
	if err := s.state.Now(); err != nil {
		body.Status, body.Reason = "unavailable", s.forCaller(c.Request(), err).Error()
	}
	return writeJSON(c, http.StatusOK, body)
}

// fail answers a request with the answer to err.
func (s *Server) fail(err error, c echo.Context) {
	a := answerTo(err, isManagement(c))
	gone := c.Request().Context().Err() != nil
	if a.status >= http.StatusInternalServerError && a.status != http.StatusServiceUnavailable && !gone && !errors.Is(err, errPanicked) {
		s.logger.Error("request failed", "method", c.Request().Method, "path", c.Request().URL.Path,
			"status", a.status, "requestId", requestID(c), "error", secrets.Line(err))
	}
	if c.Response().Committed {
		return // too late to say anything
	}
	if a.status == http.StatusServiceUnavailable {
		c.Response().Header().Set(echo.HeaderRetryAfter, retryUnavailable)
	}
	if a.body == nil {
		err = c.NoContent(a.status)
	} else {
		err = writeJSON(c, a.status, a.body)
	}
	if err != nil {
		s.logger.Debug("answer not delivered", "requestId", requestID(c), "error", err)
	}
}

// writeJSON answers with v as JSON. Unlike echo's own method it leaves <, > and
// & as they are, which URLs need to be legible.
func writeJSON(c echo.Context, status int, v any) error {
	text, err := jsontext.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if c.Request().Method == http.MethodHead {
		text = nil
	}
	return c.Blob(status, contentTypeJSON, text)
}
