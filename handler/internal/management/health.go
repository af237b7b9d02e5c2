package management

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// A HealthPayload says how the app is.
type HealthPayload struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
	// Waiting says what waits for functions that no worker here knows.
	Waiting []string `json:"waiting,omitempty"`
	// Undecodable are messages that nobody here can decode.
	Undecodable *undecodablePayload `json:"undecodable,omitempty"`
}

// healthPaths are where health is told standalone, besides the management API,
// for whatever watches over the process.
const (
	LivePath  = "/health/live"
	ReadyPath = "/health/ready"
)

// live answers GET health/live: who hears this hears that the process lives.
func (m *API) live(c echo.Context, _ web.Query) error {
	return web.WriteJSON(c, http.StatusOK, HealthPayload{Status: "live"})
}

// ready answers GET health/ready. The reasons are told to who has the key, or
// behind the host, where it has looked at keys.
func (m *API) ready(c echo.Context, _ web.Query) error {
	err := m.state.Now()
	if err == nil && m.checkup != nil {
		if err = m.checkup.now(c.Request().Context()); err != nil {
			err = fmt.Errorf("the storage of task hub %q cannot be used: %s", m.cfg.TaskHub, secrets.Line(err))
		}
	}
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
		payload := HealthPayload{Status: "ready"}
		if m.Access.full(c.Request()) {
			for _, f := range m.allWaiting() {
				payload.Waiting = append(payload.Waiting, f.String())
			}
			payload.Undecodable = m.undecodable()
		}
		return web.WriteJSON(c, http.StatusOK, payload)
	}
	payload := HealthPayload{Status: "unavailable", Reasons: []string{reason}}
	if !m.Access.full(c.Request()) {
		payload.Reasons = nil
	}
	c.Response().Header().Set(echo.HeaderRetryAfter, web.RetryUnavailable)
	return web.WriteJSON(c, http.StatusServiceUnavailable, payload)
}

// Who asks whether the app is ready has the storage asked, for at most checkTime, and
// not again within checkEvery, however many ask.
const (
	CheckEvery = 5 * time.Second
	CheckTime  = 5 * time.Second
)

// A checkup remembers how a hub was when it was last looked at.
type checkup struct {
	check func(context.Context) error

	mu  sync.Mutex // protects the following
	at  time.Time
	err error
}

// now returns why the hub cannot be used, nil if it can.
func (u *checkup) now(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.IsZero() || time.Since(u.at) >= CheckEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CheckTime)
		defer cancel()
		u.err, u.at = u.check(ctx), time.Now()
	}
	return u.err
}
