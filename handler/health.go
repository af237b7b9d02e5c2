package handler

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// A healthPayload says how the app is.
type healthPayload struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

// healthPaths are where health is told standalone, besides the management API,
// for whatever watches over the process.
const (
	livePath  = "/health/live"
	readyPath = "/health/ready"
)

// live answers GET health/live: who hears this hears that the process lives.
func (m *management) live(c echo.Context, _ query) error {
	return writeJSON(c, http.StatusOK, healthPayload{Status: "live"})
}

// ready answers GET health/ready. The reasons are told to who has the key, or
// behind the host, where it has looked at keys.
func (m *management) ready(c echo.Context, _ query) error {
	err := m.server.state.now()
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	select {
	case <-m.draining:
		reason = "The app is stopping."
	default:
	}
	if reason == "" {
		return writeJSON(c, http.StatusOK, healthPayload{Status: "ready"})
	}
	payload := healthPayload{Status: "unavailable", Reasons: []string{reason}}
	if !m.access.full(c.Request()) {
		payload.Reasons = nil
	}
	c.Response().Header().Set(echo.HeaderRetryAfter, retryUnavailable)
	return writeJSON(c, http.StatusServiceUnavailable, payload)
}

// addHealth adds the routes at healthPaths.
func (s *Server) addHealth() {
	if s.cfg.BehindHost {
		return
	}
	s.echo.GET(livePath, func(c echo.Context) error { return s.management.live(c, nil) })
	s.echo.GET(readyPath, func(c echo.Context) error { return s.management.ready(c, nil) })
}
