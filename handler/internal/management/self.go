package management

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// makePrimary answers POST makeprimary. An app without an app lease cannot be
// made the primary one (HttpApiHandler.cs, HandleMakePrimaryRequestAsync).
func (m *API) makePrimary(c echo.Context, _ web.Query) error {
	const refusal = "This app does not use the app lease: every app on the task hub shares its work, and none is the primary one."
	if !m.cfg.AppLease {
		return web.BadRequest(refusal)
	}
	err := m.hub.MakePrimary(c.Request().Context())
	switch {
	case errors.Is(err, provider.ErrNotSupported):
		return web.BadRequest(refusal)
	case err != nil:
		return fmt.Errorf("make this the primary app: %w", err)
	}
	return c.NoContent(http.StatusOK)
}

// scale answers GET scale.
func (m *API) scale(c echo.Context, _ web.Query) error {
	load, err := m.load.look(c.Request().Context())
	if errors.Is(err, provider.ErrNotSupported) {
		return web.AnswerWith(http.StatusNotImplemented, web.WithCause("What stores the task hub cannot tell its load.", err))
	}
	if err != nil {
		return err
	}
	return web.WriteJSON(c, http.StatusOK, load)
}

// A Configuration is the effective configuration.
type Configuration struct {
	Mode     string                      `json:"mode"`
	Plan     string                      `json:"plan"`
	Address  string                      `json:"address"`
	AppRoot  string                      `json:"appRoot"`
	LogLevel string                      `json:"logLevel"`
	Key      string                      `json:"key"`
	Settings []settings.EffectiveSetting `json:"settings"`
	Notices  []string                    `json:"notices"`
	Problems []string                    `json:"problems"`
}

// configuration answers GET configuration, also while the configuration is
// wrong.
func (m *API) configuration(c echo.Context, _ web.Query) error {
	return web.WriteJSON(c, http.StatusOK, m.cfg.Configuration())
}
