package management

import (
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

const (
	// StartPatience is how long a request waits for an app that has just
	// started to reach its storage.
	StartPatience = 10 * time.Second
)

// Gate answers GET / at once, whatever else is the case: the host takes an
// answer for the sign that the handler is up, and asks again later to measure
// it (azure-functions-host: Workers/Http/DefaultHttpWorkerService.cs). So are
// requests that ask how the app is. All others get status 503 while there is
// nothing to serve them with, and the reason if they may know it.
func (m *API) Gate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return m.alive(c)
		}
		if m.asksHowItIs(c) {
			return next(c)
		}
		if err := m.state.Await(r.Context(), StartPatience); err != nil {
			return m.forCaller(r, err)
		}
		return next(c)
	}
}

// asksHowItIs reports whether a request is one that needs no hub.
func (m *API) asksHowItIs(c echo.Context) bool {
	if path := c.Request().URL.Path; path == LivePath || path == ReadyPath {
		return !m.cfg.BehindHost
	}
	if !web.IsManagement(c) {
		return false
	}
	route, _ := m.route(c)
	return route != nil && route.Always
}

// forCaller returns err, or one without its reason for who lacks the key.
func (m *API) forCaller(r *http.Request, err error) error {
	if m.Access.full(r) {
		return err
	}
	return &taskhub.UnavailableError{Reason: "The app cannot serve now. A request with the key gets the reason."}
}

// alive says how the app is.
func (m *API) alive(c echo.Context) error {
	body := struct {
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}{Status: "ready"}
	if err := m.state.Now(); err != nil {
		body.Status, body.Reason = "unavailable", m.forCaller(c.Request(), err).Error()
	}
	return web.WriteJSON(c, http.StatusOK, body)
}
